"""Headers that tell a server for whom a request is made: what its caller brought along, where the operator
wrote that it goes. Composed only for servers whose definition asks for it."""

from __future__ import annotations

import base64
import binascii
import logging
from collections import ChainMap
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec

from nanobot.config.environment import BEARER_TOKEN
from nanobot.config.expand import UnsetVariable, expand
from nanobot.config.model import McpServer
from nanobot.errors import ConfigError, UpstreamUnavailable
from nanobot.http import HttpAnswer, HttpStream
from nanobot.upstream.definition import SHORTEST_SECRET, check_header
from nanobot.wire.call import Caller
from nanobot.wire.carrier import Carrier

log = logging.getLogger(__name__)

MAX_TOKEN: Final = 16 * 1024
"""A longer token is not looked into."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class PersonalHeaders:
    """Of one connection, which belongs to one account. `latest` are those of whoever asked last.

    They stand in where no request is under way: for the handshake, the stream of news, the farewell.
    """

    def __init__(self, server: McpServer, env: Mapping[str, str]) -> None:
        self._server = server
        self._templates = {name: server.headers[name] for name in sorted(server.personal_headers)}
        self._env = env
        self._has_warned = False
        self.latest: Mapping[str, str] = {}

    @staticmethod
    def of(server: McpServer, env: Mapping[str, str]) -> PersonalHeaders | None:
        """None for a server that is told nothing of callers, as one that is not trusted never is."""
        return PersonalHeaders(server, env) if server.personal_headers and server.is_trusted else None

    @property
    def secrets(self) -> list[str]:
        """Texts that must not reach a log or an error, the longest first."""
        values = [text for value in self.latest.values() for text in (value, value.rpartition(" ")[2])]
        return sorted((value for value in values if len(value) >= SHORTEST_SECRET), key=len, reverse=True)

    def made_for(self, caller: Caller) -> Mapping[str, str]:
        """The headers of a request of `caller`. Raises `UpstreamUnavailable` if it lacks what they need."""
        values = ChainMap[str, str](dict(caller.values), dict(self._env))
        headers: dict[str, str] = {}
        for template, written in self._templates.items():
            place = f"headers.{template}"
            try:
                name, value = expand(template, values), expand(written, values)
                check_header(self._server, place, name, value)
            except UnsetVariable as e:
                raise UpstreamUnavailable(self._server.name, _missing(place, e.name)) from e
            except ConfigError as e:
                raise UpstreamUnavailable(self._server.name, str(e)) from e
            headers[name] = value
        self._warn(caller.values.get(BEARER_TOKEN, ""))
        self.latest = headers
        return headers

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
    """Whom a JSON Web Token says it is for; nobody, if it is none or does not say. Nothing is verified."""
    parts = token.split(".")
    if len(parts) != 3 or len(token) > MAX_TOKEN:
        return []
    try:
        claims = _decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, msgspec.DecodeError, RecursionError):
        return []
    named = claims.get("aud")
    several = cast("list[Any]", named) if isinstance(named, list) else [named]
    return [one for one in several if isinstance(one, str)]


def _host(audience: str) -> str:
    try:
        return urlsplit(audience).hostname or ""
    except ValueError:
        return ""
