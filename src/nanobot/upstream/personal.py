"""Headers that tell a server for whom a request is made: what its caller brought along, where the operator
wrote that it goes. Composed only for servers whose definition asks for it."""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, cast
from urllib.parse import urlsplit

from nanobot.config.environment import BEARER_TOKEN
from nanobot.config.expand import UnsetVariable, expand
from nanobot.config.model import McpServer
from nanobot.errors import ConfigError, CredentialsRefused, UpstreamUnavailable
from nanobot.http import HttpAnswer, HttpStream
from nanobot.upstream.definition import check_header
from nanobot.upstream.oauth.exchange import TokenExchange
from nanobot.upstream.oauth.failures import AuthorizationFailed
from nanobot.upstream.secrecy import RecentSecrets
from nanobot.upstream.tried import Tried
from nanobot.upstream.unverified import claims_of
from nanobot.wire.call import Caller
from nanobot.wire.carrier import Carrier

log = logging.getLogger(__name__)

AUTHORIZATION: Final = "Authorization"


class PersonalHeaders:
    """Of one connection, which belongs to one account. `latest` are those of whoever asked last.

    They stand in where no request is under way: for the handshake, the stream of news, the farewell.
    What is made of callers' values is `recent` before it is sent.
    """

    def __init__(
        self,
        server: McpServer,
        env: Mapping[str, str],
        exchange: TokenExchange | None,
        recent: RecentSecrets,
    ) -> None:
        self._server = server
        self._recent = recent
        self._exchange = exchange
        own = (name for name in server.headers if name.lower() == AUTHORIZATION.lower())
        self._authorization = next(own, AUTHORIZATION)
        self._templates = {name: server.headers[name] for name in sorted(server.personal_headers)}
        self._env = dict(env)
        self._has_warned = False
        self.tried = Tried()
        """Headers that were tried since an attempt to connect succeeded."""
        self.latest: Mapping[str, str] = {}

    @staticmethod
    def of(
        server: McpServer, env: Mapping[str, str], exchange: TokenExchange | None, recent: RecentSecrets
    ) -> PersonalHeaders | None:
        """None for a server that is told nothing of callers, as one that is not trusted never is.

        Where tokens are exchanged, every remote server is told who asks, but for one that all callers share.
        """
        if not is_exchanged_for(server):
            exchange = None
        if not server.is_trusted or not (server.personal_headers or exchange is not None):
            return None
        return PersonalHeaders(server, env, exchange, recent)

    async def made_for(self, caller: Caller) -> Mapping[str, str]:
        """The headers of a request of `caller`.

        Raises `UpstreamUnavailable` if it lacks what they need, or its token cannot be exchanged.
        """
        self._recent.remember(*caller.values.values())
        values = ChainMap[str, str](dict(caller.values), self._env)
        headers: dict[str, str] = {}
        for template, written in self._templates.items():
            place = f"headers.{template}"
            try:
                name, value = expand(template, values), expand(written, values)
                check_header(self._server, place, name, value)
            except UnsetVariable as e:
                reason = _missing(place, e.name)
                if e.name == BEARER_TOKEN:
                    raise CredentialsRefused(self._server.name, reason) from e
                raise self._unavailable(reason) from e
            except ConfigError as e:
                raise self._unavailable(str(e)) from e
            headers[name] = value
        token = caller.values.get(BEARER_TOKEN, "")
        if token and self._exchange is not None:
            try:
                exchanged = await self._exchange.token(token, self._server.url)
            except AuthorizationFailed as e:
                raise self._unavailable(str(e)) from e
            if exchanged:
                headers[self._authorization] = f"Bearer {exchanged}"
        if self._templates:
            self._warn(token)
        self._recent.remember(*headers.values())
        self.latest = headers
        return headers

    def _unavailable(self, reason: str) -> UpstreamUnavailable:
        return UpstreamUnavailable(self._server.name, reason, for_caller=True)

    def _warn(self, token: str) -> None:
        """Say once that a token goes to somebody else than it says it is for."""
        if self._has_warned or not token:
            return
        host = urlsplit(self._server.url).hostname
        named = [one for audience in _audiences(token) if (one := _host(audience))]
        if named and host not in named:
            self._has_warned = True
            log.warning(
                "a caller's token is passed on to a server that it was not made for",
                extra={"server": self._server.name, "audience": named[:5]},
            )


def is_exchanged_for(server: McpServer) -> bool:
    """Whether callers' tokens are exchanged for ones that are meant for `server`."""
    is_remote = bool(server.url) and not server.command
    return is_remote and server.is_trusted and server.sharing != "global" and server.transport != "sse"


class PersonalHttp:
    """`http` with the latest headers on requests that have none of their own; satisfies `Carrier`."""

    def __init__(self, http: Carrier, personal: PersonalHeaders) -> None:
        self._http = http
        self._personal = personal

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 30.0,
    ) -> HttpAnswer:
        return await self._http.request(
            method, url, headers=self._with(headers), body=body, timeout_s=timeout_s
        )

    def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        idle_s: float | None = 90.0,
    ) -> AbstractAsyncContextManager[HttpStream]:
        return self._http.stream(method, url, headers=self._with(headers), body=body, idle_s=idle_s)

    def _with(self, headers: Mapping[str, str] | None) -> Mapping[str, str]:
        own = headers or {}
        present = {name.lower() for name in own}
        return {**own, **{n: v for n, v in self._personal.latest.items() if n.lower() not in present}}


def _missing(place: str, variable: str) -> str:
    if variable == BEARER_TOKEN:
        return f"its {place} passes on the caller's token; send `Authorization: Bearer …`"
    return f"its {place} needs {variable!r}; set it, or send `X-Nanobot-Env-{variable}`"


def _audiences(token: str) -> list[str]:
    """Whom a JSON Web Token says it is for; nobody, if it is none or does not say."""
    named = claims_of(token).get("aud")
    several = cast("list[Any]", named) if isinstance(named, list) else [named]
    return [one for one in several if isinstance(one, str)]


def _host(audience: str) -> str:
    try:
        return urlsplit(audience).hostname or ""
    except ValueError:
        return ""
