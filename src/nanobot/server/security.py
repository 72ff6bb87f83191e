"""The gate in front of every route: which hosts and origins may talk to us, and what pages may do.

A server on loopback can be reached by any web page that the person visits. What keeps a foreign page out:
its browser says which page asks (`Origin`) and which name it believes it talks to (`Host`; after DNS
rebinding this is the attacker's). Both are checked before anything else happens. Headers of proxies
(`X-Forwarded-*`, `Forwarded`) are not looked at; those of trusted ones have been applied by then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nanobot.config.model import ServerSettings
from nanobot.errors import ConfigError
from nanobot.server.exchange import Exchange
from nanobot.server.problems import BadRequest, Header

LOOPBACK_NAMES: Final = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})

PAGE_HEADERS: Final[tuple[Header, ...]] = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        b"connect-src 'self'; frame-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
        b"frame-ancestors 'none'; object-src 'none'; require-trusted-types-for 'script'; "
        b"trusted-types 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"microphone=(), camera=(), geolocation=()"),
)
"""Headers of everything the web chat consists of: it runs its own files and reaches its own server only."""

_EXPOSED = b"Mcp-Session-Id, MCP-Protocol-Version, Last-Event-ID, WWW-Authenticate"
_METHODS = b"GET, POST, PATCH, DELETE, OPTIONS"


_is_for_tokens = re.compile(rb"/mcp(/.*)?|/token|/register|/revoke|/\.well-known/.*", re.DOTALL).fullmatch


@dataclass(frozen=True, slots=True)
class Reach:
    """What the gate lets through besides, where callers sign in.

    `hosts`: further hosts that mean this server. `any_address`: any IP address does; a page cannot pretend to
    have come from one. `pages_with_tokens`: pages of any origin may use the paths that take bearer tokens,
    because a page has only the tokens that a person gave it; cookies do not count there.
    """

    hosts: frozenset[bytes] = frozenset()
    any_address: bool = False
    pages_with_tokens: bool = False


def check_listen_address(host: str, *, is_protected: bool = False) -> None:
    """Raise `ConfigError` unless `host` means this machine alone or callers have to sign in."""
    if is_protected:
        return
    name = host.strip("[]")
    try:
        is_loopback = ip_address(name).is_loopback
    except ValueError:
        is_loopback = name.lower() == "localhost"
    if not is_loopback:
        raise ConfigError(
            f"Refusing to listen on {host!r}: other machines could use this nanobot without signing in. "
            f"Configure `auth` (or `server.requireSecret`), or listen on localhost."
        )


class Gate:
    """Answers 421 for a foreign Host and 403 for a foreign Origin, does CORS, and names the account.

    `inner` sees only requests that passed. Requests without an Origin (programs, not pages) get nothing
    added, which keeps the way to the MCP endpoint short.
    """

    def __init__(self, inner: ASGIApp, settings: ServerSettings, reach: Reach | None = None) -> None:
        self._inner = inner
        self._reach = reach = reach or Reach()
        self._hosts = LOOPBACK_NAMES | reach.hosts | {h.lower().encode() for h in settings.allowed_hosts}
        self._origins = {o.lower().rstrip("/").encode() for o in settings.cors_origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _refuse_other(scope, send)
            return
        host = origin = fetch_site = None
        for name, value in scope["headers"]:
            if name == b"host":
                # A second Host could be the one that a proxy in front of us looked at.
                host = value.lower() if host is None else b""
            elif name == b"origin":
                origin = value.lower() if origin is None else b"null"
            elif name == b"sec-fetch-site":
                fetch_site = value
        refusal = self._refusal(scope, host, origin, fetch_site)
        if refusal is not None:
            await Exchange(scope, receive, send).answer_error(refusal)
            return
        if origin is not None:
            if self._is_for_tokens(scope):
                origin = b"*"
            if scope["method"] == "OPTIONS" and (headers := _preflight(scope, origin)):
                await Exchange(scope, receive, send).answer(204, headers)
                return
            send = _readable_by(origin, send)
        scope.setdefault("state", {})["account"] = ""
        await self._inner(scope, receive, send)

    def _refusal(
        self, scope: Scope, host: bytes | None, origin: bytes | None, fetch_site: bytes | None
    ) -> BadRequest | None:
        if host is None or not self._is_ours(host):
            return _foreign_host(host or b"")
        if origin is None:
            is_foreign = fetch_site == b"cross-site" and not _is_navigation(scope)
            return _foreign_origin(b"another site") if is_foreign else None
        if self._is_welcome(origin, host) or self._is_for_tokens(scope):
            return None
        return _foreign_origin(origin)

    def _is_for_tokens(self, scope: Scope) -> bool:
        return self._reach.pages_with_tokens and _is_for_tokens(scope["path"].encode()) is not None

    def _is_ours(self, host: bytes) -> bool:
        if host in self._hosts:
            return True
        name = _without_port(host)
        return name in self._hosts or (self._reach.any_address and _is_address(name))

    def _is_welcome(self, origin: bytes, host: bytes) -> bool:
        scheme, _, place = origin.partition(b"://")
        if scheme not in (b"http", b"https"):
            return origin in self._origins  # also "null": an origin that could be anybody
        return place == host or _without_port(place) in LOOPBACK_NAMES or origin in self._origins


def _without_port(host: bytes) -> bytes:
    """`host` without `:port`, which must be a number; anything else is given back as it is."""
    name, colon, port = host.rpartition(b":")
    return name if colon and port.isdigit() else host


def _is_address(name: bytes) -> bool:
    try:
        ip_address(name.decode("latin-1").strip("[]"))
    except ValueError:
        return False
    return True


def _is_navigation(scope: Scope) -> bool:
    """Whether a person follows a link to us: that shows our own page and tells the other one nothing."""
    return scope["method"] == "GET" and _header(scope, b"sec-fetch-mode") == b"navigate"


def _foreign_host(host: bytes) -> BadRequest:
    name = host.decode("latin-1")[:200]
    return BadRequest(
        421,
        "foreign_host",
        f"This server does not answer for the host {name!r}; `server.allowedHosts` lists further names.",
    )


def _foreign_origin(origin: bytes) -> BadRequest:
    name = origin.decode("latin-1")[:200]
    return BadRequest(
        403,
        "foreign_origin",
        f"Pages of {name!r} may not use this server; `server.corsOrigins` lists further origins.",
    )


def _preflight(scope: Scope, origin: bytes) -> list[Header] | None:
    """The answer to a browser that asks before it sends; None for any other OPTIONS request."""
    if not _header(scope, b"access-control-request-method"):
        return None
    headers = [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-max-age", b"600"),
        (b"vary", b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
    ]
    if names := _header(scope, b"access-control-request-headers"):
        headers.append((b"access-control-allow-headers", names))
    return headers


def _readable_by(origin: bytes, send: Send) -> Send:
    """`send` that lets pages of `origin` read the answer."""
    cors: Sequence[Header] = (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"Origin"),
    )

    async def send_readable(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *cors]
        await send(message)

    return send_readable


def _header(scope: Scope, wanted: bytes) -> bytes:
    return next((value for name, value in scope["headers"] if name == wanted), b"")


async def _refuse_other(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
