"""The one authenticator before all routes: whoever passes has an account.

A bearer token is tried first, then the session cookie, then what a trusted proxy says. The last two are added
by browsers and proxies without the person's doing: a cookie counts only for requests of our own pages, the
word of a proxy also for those of programs, which say nothing of any page.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from urllib.parse import quote

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nanobot.server.auth.challenge import Challenge
from nanobot.server.auth.cookies import is_another_page, is_navigation, is_our_own_page, read_cookie
from nanobot.server.auth.forwarded import remote_principal
from nanobot.server.auth.logins import COOKIE, Logins
from nanobot.server.auth.plain_page import redirect
from nanobot.server.auth.principal import AuthUnavailable, NotSignedIn, Principal, TokenScheme
from nanobot.server.exchange import ClientGone, Exchange
from nanobot.server.methods import Methods, answer_by_method
from nanobot.server.problems import BadRequest

_BEARER = re.compile(rb"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)
_MAX_TOKEN = 16 * 1024

OPEN_PATHS = frozenset({"/healthz", "/health", "/api/version", "/oauth/callback"})
"""What everybody may ask, because it is asked before anybody can sign in."""

OPEN_PREFIX = "/.well-known/oauth-client/"
"""Who we are ourselves, for the authorization servers of MCP servers that we use."""

Routes = Callable[[str], Methods | None]
"""The routes of signing in themselves, by path."""


class Authenticator:
    """Sets `scope["state"]` members `account` and `principal`, or answers 401 (503 if it cannot tell).

    `logins` and `remote_headers` say which of the ways besides bearer tokens are open. `has_pages`: a person
    who opens a page without being signed in is sent to sign in.
    """

    def __init__(
        self,
        inner: ASGIApp,
        *,
        schemes: Sequence[TokenScheme],
        logins: Logins | None,
        remote_headers: bool,
        routes: Routes,
        challenge: Challenge,
        open_paths: frozenset[str] = OPEN_PATHS,
        has_pages: bool = True,
    ) -> None:
        self._inner = inner
        self._schemes = schemes
        self._logins = logins
        self._remote_headers = remote_headers
        self._routes = routes
        self._challenge = challenge
        self._open_paths = open_paths
        self._has_pages = has_pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path in self._open_paths or path.startswith(OPEN_PREFIX):
            await self._inner(scope, receive, send)
            return
        http = Exchange(scope, receive, send)
        try:
            if (methods := self._routes(path)) is not None:
                await answer_by_method(http, methods)
                return
            principal = await self._who(scope)
        except ClientGone:
            return
        except NotSignedIn as refused:
            await self._refuse(http, refused)
            return
        except Exception as error:  # the boundary of one request, as in the router
            if http.is_answered:
                raise
            if isinstance(error, AuthUnavailable):
                error = BadRequest(503, error.code, str(error), headers=[(b"retry-after", b"5")])
            await http.answer_error(error)
            return
        scope["state"]["account"] = principal.account
        scope["state"]["principal"] = principal
        if principal.expires_at is not None and scope["method"] == "GET":
            if not await _until(principal.expires_at, self._inner, scope, receive, send):
                await self._refuse(http, NotSignedIn("The token has expired."))
        else:
            await self._inner(scope, receive, send)

    async def _who(self, scope: Scope) -> Principal:
        """Whoever the request proves to come from. Raises `NotSignedIn` and `AuthUnavailable`."""
        sent = [value for name, value in scope["headers"] if name == b"authorization"]
        if sent:
            return await self._by_token(sent)
        if self._logins is not None and is_our_own_page(scope) and (cookie := read_cookie(scope, COOKIE)):
            if (known := await self._logins.find(cookie)) is not None:
                return known
        if self._remote_headers and not is_another_page(scope):
            if (remote := remote_principal(scope)) is not None:
                return remote
        raise NotSignedIn("Sign in first: send `Authorization: Bearer …`.", is_missing=True)

    async def _by_token(self, sent: Sequence[bytes]) -> Principal:
        token = bearer_of(sent)
        if token is None:
            raise NotSignedIn("Send one header `Authorization: Bearer …`.")
        for scheme in self._schemes:
            if (principal := await scheme.recognise(token)) is not None:
                return principal
        raise NotSignedIn("The token is not known.")

    async def _refuse(self, http: Exchange, refused: NotSignedIn) -> None:
        path: str = http.scope["path"]
        is_page = not path.startswith(("/mcp", "/api/", "/v1/", "/assets/"))
        if self._has_pages and self._logins is not None and is_page and is_navigation(http.scope):
            query = http.scope["query_string"].decode("latin-1")
            place = path + (f"?{query}" if query else "")
            await redirect(http, f"/login?next={quote(place, safe='/')}")
        else:
            await self._challenge.refuse(http, refused)


def bearer_of(sent: Sequence[bytes]) -> str | None:
    """The token in the `Authorization` headers of a request; None if they are not exactly one good one."""
    match = _BEARER.fullmatch(sent[0]) if len(sent) == 1 and len(sent[0]) <= _MAX_TOKEN else None
    return None if match is None else match[1].decode("ascii")


async def _until(end: float, inner: ASGIApp, scope: Scope, receive: Receive, send: Send) -> bool:
    """Answer, but end a stream when the proof behind it ends; the client comes back with a better one.

    False if the end came before the answer had begun.
    """
    has_begun = is_open = False

    async def watched(message: Message) -> None:
        nonlocal has_begun, is_open
        if message["type"] == "http.response.start":
            has_begun = is_open = True
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            is_open = False
        await send(message)

    with anyio.move_on_after(max(0.0, end - time.time())) as scope_in_time:
        await inner(scope, receive, watched)
    if scope_in_time.cancelled_caught and is_open:
        await send({"type": "http.response.body"})
    return has_begun or not scope_in_time.cancelled_caught
