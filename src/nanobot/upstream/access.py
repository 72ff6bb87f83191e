"""How a connection gets along with a server that may want a login: without OAuth until it asks for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import anyio

from nanobot.config.model import McpServer
from nanobot.errors import LoginRequired, StoreError
from nanobot.upstream.oauth.authorizer import Authorizer
from nanobot.upstream.oauth.carrier import AuthorizedHttp
from nanobot.upstream.oauth.client import OAuthClient
from nanobot.upstream.oauth.failures import LoginNeeded
from nanobot.upstream.oauth.interaction import log_in, way_to_ask
from nanobot.wire.call import Call
from nanobot.wire.carrier import Carrier

RECHECK_S: Final = 2.0
"""How often we look whether another process (`nanobot mcp login`) got a token, while we have none."""
MAX_LOGINS: Final = {"login": 1, "scope": 2}
"""How often one request may lead to a login, by its reason."""

log = logging.getLogger(__name__)


class Access:
    """Of one connection of `account`. `authorized` is called whenever there is a new token."""

    def __init__(
        self, server: McpServer, client: OAuthClient, authorized: Callable[[], None], *, account: str
    ) -> None:
        self._server = server
        self._client = client
        self._account = account
        self._authorized = authorized
        self._authorizer: Authorizer | None = None
        self._in_use = server.oauth is not None
        self._news = anyio.Event()
        self._unwatch: Callable[[], None] = lambda: None

    @staticmethod
    def of(
        server: McpServer, client: OAuthClient | None, authorized: Callable[[], None], *, account: str = ""
    ) -> Access | None:
        """None for a server that is no remote one, or whose credentials the operator wrote down."""
        has_own = any(name.lower() == "authorization" for name in server.headers)
        if client is None or server.command or not server.url or (has_own and server.oauth is None):
            return None
        return Access(server, client, authorized, account=account)

    async def carrier(self, http: Carrier, url: str) -> Carrier:
        """What carries requests to `url`: `http` itself while no token is needed. Raises `StoreError`."""
        if self._authorizer is None:
            self._authorizer = self._client.authorizer(self._server, url, account=self._account)
            self._unwatch = self._authorizer.watch(self._changed)
            self._in_use = await self._authorizer.load() or self._in_use
        return AuthorizedHttp(http, self._authorizer) if self._in_use else http

    def close(self) -> None:
        """Hear of no tokens any more."""
        self._unwatch()

    def demand(self) -> bool:
        """The server refused a request; whether it makes sense to come again with a token."""
        was_in_use, self._in_use = self._in_use, True
        return not was_in_use

    async def log_in(self, needed: LoginNeeded, call: Call, times: int) -> None:
        """Have the person behind `call` log in. Raises `LoginRequired` if that cannot be or did not help.

        A connection that everybody shares is logged in by its operator alone: one caller's login would serve
        all the others.
        """
        if call.caller.account != self._account:
            raise LoginRequired(self._server.name, needed.reason)
        if needed.flow is None or times > MAX_LOGINS[needed.why] or way_to_ask(call) is None:
            raise self.required(needed)
        await log_in(needed.flow, call, server=self._server.name)

    def required(self, needed: LoginNeeded) -> LoginRequired:
        url = needed.flow.url if needed.flow is not None else ""
        return LoginRequired(self._server.name, needed.reason, auth_url=url, account=self._account)

    async def news(self) -> None:
        """Wait a while for a token; `authorized` has been called if there is one."""
        with anyio.move_on_after(RECHECK_S):
            await self._news.wait()
            return
        try:
            if self._authorizer is not None:
                await self._authorizer.load()
        except StoreError as e:
            log.warning("cannot look for a login", extra={"server": self._server.name, "reason": str(e)})

    def wake(self) -> None:
        """Let `news` return."""
        self._news.set()
        self._news = anyio.Event()

    def _changed(self) -> None:
        self._authorized()
        self.wake()
