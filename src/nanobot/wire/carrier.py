"""What carries the requests of an HTTP connection: the one client of the process, or something around it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from nanobot.http import HttpAnswer, HttpStream


class Carrier(Protocol):
    """`http.Http` satisfies it. A wrapper may raise `ConnectionLost` beside `HttpError`: the request was
    not carried out then."""

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 30.0,
    ) -> HttpAnswer: ...

    def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        idle_s: float | None = 90.0,
    ) -> AbstractAsyncContextManager[HttpStream]: ...
