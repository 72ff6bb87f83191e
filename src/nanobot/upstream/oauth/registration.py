"""Who we are to an authorization server: what the operator wrote, a document of ours, or a registration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from nanobot.config.expand import expand
from nanobot.config.model import OAuthSettings
from nanobot.errors import ConfigError
from nanobot.http import Http, HttpError
from nanobot.upstream.oauth.addresses import is_loopback
from nanobot.upstream.oauth.discovery import AuthorizationServer
from nanobot.upstream.oauth.failures import AuthorizationFailed
from nanobot.upstream.oauth.grant import AuthMethod, Client

CLIENT_NAME: Final = "Nanobot MCP Client"
DOCUMENT_PATH: Final = "/.well-known/oauth-client/nanobot.json"
REGISTER_S: Final = 15.0
MAX_ANSWER: Final = 64 * 1024

_METHODS: Final[tuple[AuthMethod, ...]] = ("none", "client_secret_post", "client_secret_basic")
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def client_document(public_url: str, callback_path: str) -> Mapping[str, Any]:
    """What we say of ourselves under `DOCUMENT_PATH`; its address is our client id."""
    return {
        "client_id": public_url + DOCUMENT_PATH,
        "client_name": CLIENT_NAME,
        "client_uri": public_url,
        "redirect_uris": [public_url + callback_path],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }


def configured_client(
    server: AuthorizationServer, settings: OAuthSettings, env: Mapping[str, str]
) -> Client | None:
    """The client that the operator registered: in the server's definition, else by variables.

    The variables are named after the host and path of the issuer: `AUTH_ACME_IO_T1_CLIENT_ID` and
    `…_CLIENT_SECRET` for `https://auth.acme.io/t1`. An id without a secret is a public client.
    """
    if settings.client_id:
        try:
            id, secret = expand(settings.client_id, env), expand(settings.client_secret, env)
        except ConfigError as e:
            raise AuthorizationFailed(f"oauth of its definition cannot be used: {e}") from e
    else:
        name = _variable(server.issuer)
        id, secret = env.get(f"{name}_CLIENT_ID", ""), env.get(f"{name}_CLIENT_SECRET", "")
    if not id:
        return None
    return Client(id=id, secret=secret, auth_method=_method_with(secret, server), origin="configured")


def document_client(server: AuthorizationServer, public_url: str) -> Client | None:
    """Our own document as a client, if the server reads such and ours is on the web."""
    if not server.takes_client_documents or not public_url.startswith("https://"):
        return None
    return Client(id=public_url + DOCUMENT_PATH, origin="document")


async def register(http: Http, server: AuthorizationServer, redirect_uri: str) -> Client:
    """Register with the authorization server (RFC 7591). Raises `AuthorizationFailed`."""
    if not server.register_url:
        raise AuthorizationFailed(
            "its authorization server registers no clients; register one there by hand and write it into "
            f"oauth.clientId, or set {_variable(server.issuer)}_CLIENT_ID"
        )
    offered = server.auth_methods or ("client_secret_basic",)  # RFC 8414: what silence means
    method = _first(offered)
    wish = {
        "client_name": CLIENT_NAME,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        # A native program may use loopback addresses with any port, a web application its own https address.
        "application_type": "native" if is_loopback(urlsplit(redirect_uri).hostname or "") else "web",
    }
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    try:
        answer = await http.request(
            "POST",
            server.register_url,
            headers=headers,
            body=msgspec.json.encode(wish),
            timeout_s=REGISTER_S,
            max_bytes=MAX_ANSWER,
        )
    except HttpError as e:
        raise AuthorizationFailed(f"its authorization server did not register us: {e}") from e
    if answer.status not in (200, 201):
        raise AuthorizationFailed(
            f"its authorization server did not register us (HTTP status {answer.status})"
        )
    try:
        said = _decode(answer.body)
    except (msgspec.DecodeError, RecursionError):
        said = {}
    return _registered(said, method, redirect_uri)


def _registered(said: Mapping[str, Any], method: AuthMethod, redirect_uri: str) -> Client:
    id, secret = said.get("client_id"), said.get("client_secret")
    if not isinstance(id, str) or not id:
        raise AuthorizationFailed("its authorization server registered us without giving us an id")
    named = said.get("token_endpoint_auth_method", method)
    chosen: AuthMethod | None = next((m for m in _METHODS if m == named), None)
    if chosen is None:
        raise AuthorizationFailed("its authorization server wants a proof of identity that we cannot give")
    expires_at = said.get("client_secret_expires_at")
    secret = secret if isinstance(secret, str) else ""
    return Client(
        id=id,
        secret=secret,
        auth_method=chosen if secret else "none",
        redirect_uri=redirect_uri,
        secret_expires_at=float(expires_at) if isinstance(expires_at, int | float) else 0.0,
    )


def _first(offered: tuple[str, ...]) -> AuthMethod:
    for method in _METHODS:
        if method in offered:
            return method
    return "none"


def _method_with(secret: str, server: AuthorizationServer) -> AuthMethod:
    if not secret:
        return "none"
    return "client_secret_post" if "client_secret_post" in server.auth_methods else "client_secret_basic"


def _variable(issuer: str) -> str:
    parts = urlsplit(issuer)
    return re.sub(r"[^A-Za-z0-9]", "_", parts.netloc + parts.path.rstrip("/")).upper()
