"""A provider as a `Model`: one endpoint, one dialect, one HTTP exchange for each request."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import Final

import anyio
import msgspec

from nanobot import __version__
from nanobot.http import Http, HttpError, HttpStream
from nanobot.llm import adapt, failures
from nanobot.llm.dialect import Dialect, Reading
from nanobot.llm.encoding import opaque
from nanobot.llm.endpoint import Adaptations, Endpoint
from nanobot.llm.model import Emit, ModelRequest, ModelResponse, ProviderError
from nanobot.sse import SseParser, SseTooLong

log = logging.getLogger(__name__)

MAX_ANSWER: Final = 64 * 1024 * 1024
MAX_QUIET_PERIODS: Final = 5
"""Idle periods that comments and pings alone may keep a stream open."""
MAX_UNREADABLE: Final = 3
"""Unreadable events in a row that end a stream."""
DRAIN_S: Final = 0.25
"""How long the end of the body is waited for after the answer, so that the connection can be used again."""


class Provider:
    """Answers through `dialect` at `endpoint`. `idle_s` is asked at each request."""

    def __init__(
        self,
        dialect: Dialect,
        endpoint: Endpoint,
        http: Http,
        *,
        idle_s: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint = endpoint
        self._dialect = dialect
        self._http = http
        self._idle_s = idle_s
        self._clock = clock
        self._learned: dict[str, Adaptations] = {}

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        learned = self._learned.setdefault(request.model, Adaptations())
        while True:
            try:
                return await self._exchange(request, learned, emit)
            except ProviderError as error:
                lesson = None if error.shown else adapt.learn(learned, request, error)
                if lesson is None:
                    raise
                log.info(
                    "request adapted to the model",
                    extra={
                        "provider": self.endpoint.provider,
                        "model": request.model,
                        "lesson": lesson,
                    },
                )

    async def _exchange(self, request: ModelRequest, learned: Adaptations, emit: Emit) -> ModelResponse:
        body = self._dialect.encode(request, self.endpoint, learned)
        reading = self._dialect.read(request, self.endpoint, emit)
        idle_s = self._idle_s()
        try:
            async with self._http.stream(
                "POST",
                self.endpoint.base_url + self._dialect.path,
                headers=self._headers(request),
                body=body,
                idle_s=idle_s,
            ) as answer:
                await self._read(answer, reading, idle_s)
            return reading.response()
        except HttpError as cause:
            error = failures.broken(self.endpoint.provider, cause)
            error.shown = reading.shown
            raise error from cause
        except SseTooLong as cause:
            message = f"Provider {self.endpoint.provider!r}: {cause}"
            raise ProviderError("connection", message, shown=reading.shown) from cause
        except ProviderError as error:
            error.shown = reading.shown
            raise

    async def _read(self, answer: HttpStream, reading: Reading, idle_s: float) -> None:
        if not 200 <= answer.status < 300:
            raise failures.refused(
                self.endpoint.provider,
                answer.status,
                answer.headers,
                await answer.read(failures.MAX_BODY),
                secret=self.endpoint.api_key,
            )
        if answer.headers.get("content-type", "").startswith("application/json"):
            body = await answer.read(MAX_ANSWER)
            try:
                reading.whole(body)
            except msgspec.DecodeError as e:
                raise failures.cut_off(self.endpoint.provider) from e
            return
        async with aclosing(answer.chunks()) as chunks:
            await self._events(chunks, reading, idle_s)
            with anyio.move_on_after(DRAIN_S), suppress(HttpError):
                async for _ in chunks:
                    pass

    async def _events(self, chunks: AsyncIterator[bytes], reading: Reading, idle_s: float) -> None:
        """Read until the answer is complete or the stream ends."""
        parser = SseParser(MAX_ANSWER)
        unreadable = 0
        last_data = self._clock()
        async for chunk in chunks:
            has_data = False
            for event in parser.feed(chunk):
                if event.comment or event.event == "ping":
                    continue
                has_data = True
                try:
                    reading.event(event.data)
                    unreadable = 0
                except msgspec.DecodeError as e:
                    unreadable += 1
                    log.warning("unreadable event skipped", extra={"provider": self.endpoint.provider})
                    if unreadable == MAX_UNREADABLE:
                        raise failures.cut_off(self.endpoint.provider) from e
            if reading.done:
                return
            now = self._clock()
            if has_data:
                last_data = now
            elif now - last_data > MAX_QUIET_PERIODS * idle_s:
                raise failures.silent(self.endpoint.provider, MAX_QUIET_PERIODS * idle_s)

    def _headers(self, request: ModelRequest) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "user-agent": f"nanobot/{__version__}",
            **self._dialect.headers(self.endpoint),
        }
        if request.thread:
            headers["x-session-affinity"] = opaque(request.thread)
        return self.endpoint.laid_over(headers)
