"""MCP clients: those that registered themselves (RFC 7591), and those known by the address of a document.

What they may do, and how they prove who they are.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Callable, Mapping
from hmac import compare_digest
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, unquote_plus, urlsplit

import msgspec

from nanobot.config.build_auth import LOOPBACK
from nanobot.server.auth.proxy.documents import Document, Documents, is_address
from nanobot.server.auth.proxy.errors import OAuthError
from nanobot.server.exchange import Exchange
from nanobot.store.credentials import Credential, Credentials

UNUSED_S: Final = 30 * 24 * 3600
"""A registration that nobody signs in with is forgotten after this time, a used one after `USED_S`."""
USED_S: Final = 365 * 24 * 3600
MOST_CLIENTS: Final = 10_000
"""When there are so many, registrations that nobody signed in with give way, the oldest first."""
MOST_REDIRECTS: Final = 20
_KIND: Final = "oauth-client"

AuthMethod = Literal["none", "client_secret_post", "client_secret_basic"]
AUTH_METHODS: Final = ("none", "client_secret_post", "client_secret_basic")
GRANT_TYPES: Final = ("authorization_code", "refresh_token")

_OWN_SCHEME: Final = re.compile(r"[a-z][a-z0-9+-]*(\.[a-z0-9+-]+)+|cursor")
"""Schemes of applications: a domain backwards (RFC 8252, 7.1), or the short one that an MCP client has.
Browsers and systems give short ones a meaning of their own, and some of those run code."""

_ANSWERS: Final = frozenset(("code", "state", "iss", "error"))
"""What we add to the query of a redirect URI; a client could not tell ours from what stood there before."""


class Client(msgspec.Struct, frozen=True):
    """A registered client. `secret`: SHA-256 of its secret, "" for a public client."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    auth_method: AuthMethod
    secret: str = ""


class _Wish(msgspec.Struct):
    """What a client asks for; further members are allowed and mean nothing to us."""

    redirect_uris: list[str]
    client_name: str = ""
    token_endpoint_auth_method: str = "client_secret_basic"
    grant_types: list[str] = msgspec.field(default_factory=lambda: ["authorization_code"])
    response_types: list[str] = msgspec.field(default_factory=lambda: ["code"])


_read_wish = msgspec.json.Decoder(_Wish).decode
_read_client = msgspec.json.Decoder(Client).decode


class Clients:
    def __init__(self, credentials: Credentials, clock: Callable[[], float], documents: Documents) -> None:
        self._credentials = credentials
        self._documents = documents
        self._clock = clock

    async def register(self, body: bytes) -> dict[str, Any]:
        """Keep a new client; what it is told. Raises `OAuthError`."""
        try:
            wish = _read_wish(body)
        except (msgspec.DecodeError, RecursionError) as e:
            raise OAuthError("invalid_client_metadata", f"The registration cannot be read: {e}.") from e
        method = _auth_method(wish)
        for uri in _few(wish.redirect_uris):
            check_redirect_uri(uri)
        if not await self._credentials.make_room(_KIND, most=MOST_CLIENTS):
            raise OAuthError("temporarily_unavailable", "Too many clients are registered.", status=503)
        secret = "" if method == "none" else f"nbs_{secrets.token_urlsafe(32)}"
        client = Client(
            id=f"nbc_{secrets.token_urlsafe(16)}",
            name=_plain(wish.client_name)[:100],
            redirect_uris=tuple(wish.redirect_uris),
            auth_method=method,
            secret=hash_of(secret) if secret else "",
        )
        await self._keep(client, UNUSED_S)
        told: dict[str, Any] = {
            "client_id": client.id,
            "client_id_issued_at": int(self._clock()),
            "client_name": client.name,
            "redirect_uris": list(client.redirect_uris),
            "token_endpoint_auth_method": method,
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
        }
        return told | ({"client_secret": secret, "client_secret_expires_at": 0} if secret else {})

    async def find(self, id: str) -> Client | None:
        """The client `id`; None for one we never gave out. Raises `OAuthError` for an address of none."""
        if is_address(id):
            return _described(await self._documents.find(id))
        found = await self._credentials.find(_KIND, id) if id else None
        return None if found is None else _read_client(found.body)

    async def note_use(self, client: Client) -> None:
        """Somebody signed in with it: keep it for longer."""
        if is_address(client.id):
            return  # nothing of it is kept
        await self._credentials.spend(_KIND, client.id)
        await self._credentials.renew(_KIND, client.id, expires=int(self._clock()) + USED_S)

    async def authenticate(self, http: Exchange, form: Mapping[str, str]) -> Client:
        """The client that makes a request, by the one way it registered. Raises `OAuthError`."""
        id, secret, method = _presented(http, form)
        client = await self.find(id)
        if client is None or client.auth_method != method:
            raise OAuthError("invalid_client", "The client is not known in this way.", status=401)
        if client.secret and not compare_digest(client.secret, hash_of(secret)):
            raise OAuthError("invalid_client", "The client's secret is not the right one.", status=401)
        return client

    async def _keep(self, client: Client, seconds: int) -> None:
        await self._credentials.put(
            Credential(
                kind=_KIND,
                id=client.id,
                body=msgspec.json.encode(client),
                expires=int(self._clock()) + seconds,
            )
        )


def _described(document: Document) -> Client:
    """A client that keeps no secret with us: its code verifier and its redirect URIs are what proves it."""
    wish = _Wish(
        redirect_uris=document.redirect_uris,
        client_name=document.client_name,
        token_endpoint_auth_method=document.token_endpoint_auth_method,
        # It may be able to do more elsewhere; here it is what it asks for that counts.
        grant_types=[one for one in document.grant_types if one in GRANT_TYPES],
        response_types=[one for one in document.response_types if one == "code"],
    )
    if _auth_method(wish) != "none":
        raise OAuthError("invalid_client", "A client with a document has no secret here.", status=401)
    for uri in _few(wish.redirect_uris):
        check_redirect_uri(uri)
    return Client(
        id=document.client_id,
        name=_plain(wish.client_name)[:100],
        redirect_uris=tuple(wish.redirect_uris),
        auth_method="none",
    )


def check_redirect_uri(uri: str) -> None:
    """Codes may be sent over TLS, to this machine, or to an application. Raises `OAuthError`."""
    try:
        parts = urlsplit(uri)
        _ = parts.port
        query = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    except ValueError:
        raise OAuthError("invalid_redirect_uri", "A redirect URI cannot be read.") from None
    is_clean = uri.isascii() and uri.isprintable() and not set(uri) & set(" \\\"'<>`") and len(uri) <= 2048
    is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
    is_good = (
        (parts.scheme == "https" and is_web)
        or (parts.scheme == "http" and is_web and parts.hostname in LOOPBACK)
        or _OWN_SCHEME.fullmatch(parts.scheme) is not None
    )
    if not is_clean or not is_good or parts.fragment or "#" in uri:
        raise OAuthError(
            "invalid_redirect_uri",
            "A redirect URI is https, http on this machine, or an application's own scheme with a dot in it "
            "(com.example.app:/done); no fragment.",
        )
    if taken := sorted(query & _ANSWERS):
        raise OAuthError("invalid_redirect_uri", f"The query of a redirect URI may not hold {taken[0]}.")


def hash_of(secret: str) -> str:
    """How secrets that we gave out are known here."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _auth_method(wish: _Wish) -> AuthMethod:
    match wish.token_endpoint_auth_method:
        case "none" | "client_secret_post" | "client_secret_basic" as method:
            pass
        case _:
            known = ", ".join(AUTH_METHODS)
            raise OAuthError("invalid_client_metadata", f"token_endpoint_auth_method is one of {known}.")
    if not set(wish.grant_types) <= set(GRANT_TYPES):
        raise OAuthError("invalid_client_metadata", "grant_types are authorization_code and refresh_token.")
    if wish.response_types != ["code"]:
        raise OAuthError("invalid_client_metadata", "The response type is code.")
    return method


def _few(uris: list[str]) -> list[str]:
    if not 1 <= len(uris) <= MOST_REDIRECTS:
        raise OAuthError("invalid_redirect_uri", f"Give 1 to {MOST_REDIRECTS} redirect URIs.")
    return uris


def _presented(http: Exchange, form: Mapping[str, str]) -> tuple[str, str, AuthMethod]:
    """Client id, secret and the way they came. Raises `OAuthError`."""
    header = http.header(b"authorization")
    if not header:
        secret = form.get("client_secret", "")
        return form.get("client_id", ""), secret, "client_secret_post" if secret else "none"
    scheme, _, encoded = header.partition(b" ")
    try:
        id, colon, secret = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        colon = id = secret = ""
    id, secret = unquote_plus(id), unquote_plus(secret)
    if scheme.lower() != b"basic" or not colon or "client_secret" in form:
        raise OAuthError("invalid_client", "The client must prove itself in one way.", status=401)
    if form.get("client_id", id) != id:
        raise OAuthError("invalid_client", "Two clients are named.", status=401)
    return id, secret, "client_secret_basic"


def _plain(text: str) -> str:
    return "".join(c for c in text if c.isprintable()).strip()
