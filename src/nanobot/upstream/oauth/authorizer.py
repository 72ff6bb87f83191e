"""One account's access to one MCP server: the token of each request, and what to do when it is refused.

Requests run side by side. Only getting a token is done by one task of one process at a time: an
authorization server may take a refresh token that comes twice for a stolen one and end everything.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from nanobot.addresses import AddressRules
from nanobot.config.model import OAuthSettings
from nanobot.ids import new_id
from nanobot.upstream.oauth.client import OAuthClient
from nanobot.upstream.oauth.failures import AuthorizationFailed, ClientRefused, GrantRefused, LoginNeeded
from nanobot.upstream.oauth.flow import Flow
from nanobot.upstream.oauth.grant import Grant, Token, from_row, to_row
from nanobot.upstream.oauth.token_endpoint import exchange, refresh, revoke
from nanobot.watchers import Watchers
from nanobot.wire.challenge import Challenge
from nanobot.wire.http_reply import Refused

log = logging.getLogger(__name__)

LEASE_S: Final = 60.0
RENEW_S: Final = 30.0
"""How long a refresh may take with everything; well below `LEASE_S`, so that no two can overlap."""
LEASE_POLL_S: Final = 0.05
GIVE_BACK_S: Final = 5.0
FAILURE_KEPT_S: Final = 5.0
"""For so long a login that could not be begun is not tried again, and everybody gets the same error."""
MAX_RESENDS: Final = 2


class Authorizer:
    """Made by `OAuthClient.authorizer`. `url` is the server's; `account` whose tokens these are.

    `rules` say which addresses the server may send us to.
    """

    def __init__(
        self,
        client: OAuthClient,
        url: str,
        settings: OAuthSettings,
        *,
        account: str,
        rules: AddressRules,
    ) -> None:
        self._client = client
        self._http = client.http.guarded(rules)
        self._rules = rules
        self._url = url
        self._settings = settings
        self._account = account
        self._grant: Grant | None = None
        self._loaded = False
        self._renewal = anyio.Lock()
        self._login = anyio.Lock()
        self._flow: Flow | None = None
        self._failed: tuple[float, AuthorizationFailed] | None = None
        self._unproven = ""
        """An access token that is new and was not accepted by the server yet."""
        self._changes = 0
        self._watchers = Watchers[[]]()

    @property
    def grant(self) -> Grant | None:
        """What is known to be granted; see `load`."""
        return self._grant

    @property
    def _token(self) -> Token | None:
        return None if self._grant is None else self._grant.token

    def watch(self, authorized: Callable[[], None]) -> Callable[[], None]:
        """Have `authorized` called whenever there is another token than before; returns how to stop that."""
        return self._watchers.add(authorized)

    async def load(self) -> bool:
        """Read what is stored, by us or by another process; whether there is a token."""
        changes = self._changes
        row = await self._client.grants.find(server=self._url, account=self._account)
        self._loaded = True
        if self._changes == changes:  # else what we know is newer than what was read
            self._adopt(None if row is None else from_row(row))
        return self._token is not None

    # For requests

    async def bearer(self) -> str | None:
        """The access token for a request; None: there is none. Renewed when its time is nearly over.

        Raises `AuthorizationFailed` if an expired one cannot be renewed now.
        """
        token = await self._current()
        if token is None:
            return None
        self._client.recent.remember(token.access, token.refresh)
        return token.access

    async def _current(self) -> Token | None:
        if not self._loaded:
            await self.load()
        token = self._token
        if token is None or not self._is_due(token):
            return token
        try:
            await self._renew(token.access, is_refused=False)
        except AuthorizationFailed:
            if token.expires_at is not None and token.expires_at <= self._client.now():
                raise
            log.warning("a token could not be renewed in time; the old one is used", exc_info=True)
        return self._token

    def accepted(self, sent: str | None) -> None:
        """The server took a request with this token."""
        if sent is not None and sent == self._unproven:
            self._unproven = ""

    async def refused(self, challenge: Challenge, sent: str | None, resends: int) -> None:
        """Return if the request should be sent again, with whatever `bearer` says then.

        `sent` is the token that was refused, `resends` how often this happened to the same request. Raises
        `LoginNeeded` if only a person can help, `Refused` if nobody can, and `AuthorizationFailed`.
        """
        if challenge.wants_more_scope:
            await self._widen(challenge, sent, resends)
            return
        if sent is not None and resends < MAX_RESENDS and await self._renew(sent, is_refused=True):
            return
        async with self._login:
            await self.load()
            if (token := self._token) is not None and token.access != sent and resends < MAX_RESENDS:
                return  # somebody logged in meanwhile
            flow = await self._begin_login(challenge)
        raise LoginNeeded(flow, why="login")

    async def _widen(self, challenge: Challenge, sent: str | None, resends: int) -> None:
        async with self._login:
            await self.load()
            token = self._token
            if token is not None and token.access != sent and resends < MAX_RESENDS:
                return
            granted = token.scopes if token is not None else ()
            scopes = tuple(dict.fromkeys((*granted, *challenge.scopes)))
            if set(scopes) <= set(granted):
                raise Refused(403, "it forbids this: what it asks for was granted already")
            flow = await self._begin_login(challenge, scopes)
        raise LoginNeeded(flow, why="scope")

    # Renewing

    def _is_due(self, token: Token) -> bool:
        return bool(token.refresh) and token.renew_at is not None and token.renew_at <= self._client.now()

    async def _renew(self, sent: str, *, is_refused: bool) -> bool:
        """Whether there is another token than `sent` now: a newer one, or the one we get for it."""
        async with self._renewal:
            if (token := self._token) is not None and token.access != sent:
                return True
            return await self._alone(lambda: self._refresh(sent, is_refused))

    async def _refresh(self, sent: str, is_refused: bool) -> bool:
        if not await self.load():  # another process may have done it, or logged out
            return False
        grant, token = self._grant, self._token
        assert grant is not None
        assert token is not None
        if token.access != sent:
            return True
        if not token.refresh or (is_refused and token.access == self._unproven):
            return False  # what we just got is refused: more of it would be too
        try:
            new = await refresh(self._http, grant, now=self._client.now())
        except GrantRefused:
            await self._keep(grant.with_token(None))
            return False
        except ClientRefused:
            if grant.client.origin == "configured":
                raise
            await self._forget()  # the next login registers us anew
            return False
        await self._keep(grant.with_token(new))
        self._unproven = new.access
        return True

    async def _alone(self, work: Callable[[], Awaitable[bool]]) -> bool:
        """Do `work` while no other process does it. Once begun it is not cancelled: a token could be lost."""
        leases, holder = self._client.leases, new_id("oauth")
        name = "oauth:" + hashlib.sha256(f"{self._account}\n{self._url}".encode()).hexdigest()
        while True:
            with anyio.move_on_after(RENEW_S, shield=True) as scope:
                if await leases.take(name, holder, for_s=LEASE_S):
                    try:
                        return await work()
                    finally:
                        with anyio.move_on_after(GIVE_BACK_S, shield=True):
                            await leases.give_back(name, holder)
            if scope.cancelled_caught:
                raise AuthorizationFailed(f"getting a token took longer than {RENEW_S:g} s")
            await anyio.sleep(LEASE_POLL_S)

    # Logging in

    async def begin_login(self, challenge: Challenge) -> Flow | None:
        """The login that waits for a person, begun if there is none; None where no answer could reach us.

        Raises `AuthorizationFailed`.
        """
        async with self._login:
            await self.load()
            return await self._begin_login(challenge)

    async def _begin_login(self, challenge: Challenge, scopes: tuple[str, ...] | None = None) -> Flow | None:
        """`scopes` None: what the server suggests."""
        redirect_uri = self._client.redirect_uri
        if not redirect_uri:
            return None
        if self._flow is not None and self._flow.is_open and set(scopes or ()) <= set(self._flow.scopes):
            return self._flow
        now = self._client.now()
        if self._failed is not None and self._failed[0] > now:
            raise self._failed[1]
        try:
            grant, wanted = await self._client.prepare(
                self._url, self._settings, challenge, scopes=scopes, known=self._grant, rules=self._rules
            )
        except AuthorizationFailed as e:
            self._failed = now + FAILURE_KEPT_S, e
            raise
        known = self._grant
        if grant.client.origin == "registered" and (known is None or known.client != grant.client):
            await self._alone(lambda: self._keep_registration(grant))
        self._flow = Flow(
            grant,
            scopes=wanted,
            redirect_uri=redirect_uri,
            account=self._account,
            redeem=self._redeem,
            clock=self._client.now,
        )
        self._client.flows.add(self._flow)
        return self._flow

    async def _redeem(self, flow: Flow, code: str) -> None:
        try:
            token = await exchange(
                self._http,
                flow.grant,
                code=code,
                verifier=flow.verifier,
                redirect_uri=flow.redirect_uri,
                scopes=flow.scopes,
                now=self._client.now(),
            )
        except ClientRefused:
            if flow.grant.client.origin == "registered":
                await self._forget()
            raise
        await self._keep(flow.grant.with_token(token))
        self._unproven = token.access

    async def log_out(self) -> bool:
        """Forget everything, and tell the authorization server; whether there was anything."""
        await self.load()
        grant = self._grant
        if grant is None:
            return False
        await revoke(self._http, grant)
        await self._forget()
        return True

    # Keeping

    async def _keep_registration(self, grant: Grant) -> bool:
        await self.load()
        known = self._grant
        same_issuer = (
            known is not None and known.authorization_server.issuer == grant.authorization_server.issuer
        )
        await self._keep(grant.with_token(known.token if known is not None and same_issuer else None))
        return True

    async def _keep(self, grant: Grant) -> None:
        """Store first, then use: a token that we have sent must be there after a crash."""
        await self._client.grants.save(to_row(grant, server=self._url, account=self._account))
        self._adopt(grant)

    async def _forget(self) -> None:
        await self._client.grants.delete(server=self._url, account=self._account)
        self._adopt(None)

    def _adopt(self, grant: Grant | None) -> None:
        self._changes += 1
        before, self._grant = self._token, grant
        after = self._token
        if after is not None and (before is None or before.access != after.access):
            self._watchers.tell()
