"""HTTP to a server that wants tokens: each request takes one along, and is sent again if that helps."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from nanobot.http import HttpAnswer, HttpStream
from nanobot.upstream.oauth.authorizer import Authorizer
from nanobot.wire.carrier import Carrier
from nanobot.wire.challenge import Challenge, read_challenge

AUTHORIZATION: Final = "Authorization"


class AuthorizedHttp:
    """Satisfies `wire.carrier.Carrier`. Raises `LoginNeeded` and `AuthorizationFailed` beside `HttpError`."""

    def __init__(self, http: Carrier, authorizer: Authorizer) -> None:
        self._http = http
        self._authorizer = authorizer

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        idle_s: float | None = 90.0,
    ) -> AsyncGenerator[HttpStream]:
        resends = 0
        while True:
            token = await self._authorizer.bearer()
            async with self._http.stream(
                method, url, headers=_with(headers, token), body=body, idle_s=idle_s
            ) as reply:
                challenge = _challenge(reply)
                if challenge is None:
                    if reply.status < 400:
                        self._authorizer.accepted(token)
                    yield reply
                    return
            await self._authorizer.refused(challenge, token, resends)
            resends += 1

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 30.0,
    ) -> HttpAnswer:
        resends = 0
        while True:
            token = await self._authorizer.bearer()
            answer = await self._http.request(
                method,
                url,
                headers=_with(headers, token),
                body=body,
                timeout_s=timeout_s,
            )
            challenge = _challenge(answer)
            if challenge is None or method == "DELETE":  # a farewell is not worth a login
                return answer
            await self._authorizer.refused(challenge, token, resends)
            resends += 1


def _challenge(reply: HttpStream | HttpAnswer) -> Challenge | None:
    """What is wrong with the token that was sent; None if nothing is."""
    if reply.status not in (401, 403):
        return None
    challenge = read_challenge(reply.status, reply.headers)
    return challenge if reply.status == 401 or challenge.wants_more_scope else None


def _with(headers: Mapping[str, str] | None, token: str | None) -> Mapping[str, str]:
    own = {name: value for name, value in (headers or {}).items() if name.lower() != "authorization"}
    return own if token is None else own | {AUTHORIZATION: f"Bearer {token}"}
