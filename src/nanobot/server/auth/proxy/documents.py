"""MCP clients known by an address, where a document describes them (client ID metadata documents)."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import msgspec

from nanobot.addresses import PUBLIC_ONLY, AddressRules
from nanobot.config.build_auth import LOOPBACK, is_safe
from nanobot.http import Http, HttpError
from nanobot.server.auth.proxy.errors import OAuthError

MAX_DOCUMENT: Final = 64 * 1024
FETCH_S: Final = 5.0
"""For everything: finding the host, connecting, and the last byte."""
MAX_AT_ONCE: Final = 8
MOST_KEPT: Final = 1000
KEPT_S: Final = 3600.0
REFUSED_S: Final = 30.0
"""How long a document that is not good is not asked for again."""
MAX_ADDRESS: Final = 512


class Document(msgspec.Struct, frozen=True):
    """What a client says of itself; further members are allowed and mean nothing to us."""

    client_id: str
    redirect_uris: list[str]
    client_name: str = ""
    token_endpoint_auth_method: str = "none"
    grant_types: list[str] = msgspec.field(default_factory=lambda: ["authorization_code"])
    response_types: list[str] = msgspec.field(default_factory=lambda: ["code"])


@dataclass(frozen=True, slots=True)
class _Kept:
    outcome: Document | str
    """A reason where there is no good document."""
    until: float


_decode = msgspec.json.Decoder(Document).decode


def documents_beside(provider_url: str) -> AddressRules:
    """Where documents may be: on the public web, and where people sign in on this machine, there too."""
    is_here = urlsplit(provider_url).hostname in LOOPBACK
    return AddressRules(("localhost", "127.0.0.0/8", "::1")) if is_here else PUBLIC_ONLY


class Documents:
    """Fetches them with `http`, which connects to permitted addresses alone, and keeps the latest."""

    def __init__(self, http: Http, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._http = http
        self._clock = clock
        self._room = anyio.CapacityLimiter(MAX_AT_ONCE)
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    async def find(self, address: str) -> Document:
        """The document at `address`, which is its `client_id`. Raises `OAuthError` (`invalid_client`)."""
        kept = self._kept.get(address)
        if kept is None or kept.until <= self._clock():
            check_address(address)
            async with self._room:
                kept = await self._look(address)
            self._kept[address] = kept
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(address)
        if isinstance(kept.outcome, str):
            raise _unknown(kept.outcome)
        return kept.outcome

    async def _look(self, address: str) -> _Kept:
        try:
            document = await self._fetch(address)
        except OAuthError as refused:
            return _Kept(str(refused), self._clock() + REFUSED_S)
        return _Kept(document, self._clock() + KEPT_S)

    async def _fetch(self, address: str) -> Document:
        asked: dict[str, Any] = {"headers": {"Accept": "application/json"}, "max_bytes": MAX_DOCUMENT}
        try:
            with anyio.fail_after(FETCH_S):
                answer = await self._http.request("GET", address, timeout_s=FETCH_S, **asked)
        except HttpError as e:
            raise _unknown(f"The client's document cannot be fetched: {e}") from e
        except TimeoutError as e:
            raise _unknown(f"The client's document did not come within {FETCH_S:g} s.") from e
        if answer.status != 200:  # a redirect too: the address is the client's name
            raise _unknown(f"The client's document cannot be fetched: HTTP status {answer.status}.")
        try:
            document = _decode(answer.body)
        except (msgspec.DecodeError, RecursionError) as e:
            raise _unknown(f"The client's document cannot be read: {e}.") from e
        if document.client_id != address:
            raise _unknown("The client's document is about another client: its client_id is not its address.")
        return document


def is_address(client_id: str) -> bool:
    """Whether a client is known by an address, and not by an id that we gave out."""
    return client_id.startswith(("https://", "http://"))


def check_address(client_id: str) -> None:
    """Raise `OAuthError` for an address that names no client."""
    try:
        parts = urlsplit(client_id)
        _ = parts.port
        is_good = is_safe(parts) and parts.path not in ("", "/") and "@" not in parts.netloc
    except ValueError:
        is_good = False
        parts = urlsplit("")
    is_clean = client_id.isascii() and client_id.isprintable() and not set(client_id) & set(" \\\"'<>`#")
    has_dots = any(one in (".", "..") for one in parts.path.split("/"))
    if not is_good or not is_clean or has_dots or len(client_id) > MAX_ADDRESS:
        raise _unknown("A client_id that is an address is https with a path; no fragment, no user, no dots.")


def _unknown(reason: str) -> OAuthError:
    return OAuthError("invalid_client", reason, status=401)
