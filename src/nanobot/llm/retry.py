"""Asking again: a model around a model."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from nanobot.llm.model import Emit, ErrorKind, Model, ModelRequest, ModelResponse, ProviderError, RetryStatus

WAITS_S: Final = (1.0, 2.0, 4.0)
JITTER: Final = 0.2
LONGEST_HINT_S: Final = 60.0
STATUS_EVERY_S: Final = 30.0


class RetryingModel:
    """`inner`, asked up to three times more when its failure may be temporary.

    When the provider says when to come back, that wins over our own waits; if it is more than a minute away,
    the error is raised at once and says so. An answer of which text was shown is never asked for again.
    `longest_s` bounds all waits of one request together, where another model could be asked instead.
    """

    def __init__(
        self,
        inner: Model,
        *,
        longest_s: float | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._inner = inner
        self._longest_s = longest_s
        self._sleep = sleep
        self._chance = chance

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        failed: ErrorKind | None = None
        attempt = 0
        waited_s = 0.0
        while True:
            try:
                response = await self._inner.respond(request, emit)
            except ProviderError as error:
                wait_s = self._wait(error, attempt)
                if wait_s is None or (self._longest_s is not None and waited_s + wait_s > self._longest_s):
                    if failed:
                        emit(RetryStatus(state="exhausted", attempt=attempt, kind=error.kind))
                    raise
                failed = error.kind
            else:
                if failed:
                    emit(RetryStatus(state="recovered", attempt=attempt, kind=failed))
                return response
            attempt += 1
            waited_s += wait_s
            await self._pause(wait_s, attempt, failed, emit)

    def _wait(self, error: ProviderError, attempt: int) -> float | None:
        """Seconds to wait before asking again; None to give up."""
        if not error.retryable or error.shown or attempt == len(WAITS_S):
            return None
        if error.retry_after is None:
            return WAITS_S[attempt] * (1 - JITTER + 2 * JITTER * self._chance())
        if error.retry_after > LONGEST_HINT_S:
            error.args = (f"{error} It asks to wait {error.retry_after:.0f} s.",)
            return None
        return error.retry_after + 1.0

    async def _pause(self, wait_s: float, attempt: int, kind: ErrorKind, emit: Emit) -> None:
        """Wait, and say so every half minute."""
        while True:
            emit(RetryStatus(state="waiting", attempt=attempt, kind=kind, wait_s=wait_s))
            step = min(wait_s, STATUS_EVERY_S)
            await self._sleep(step)
            wait_s -= step
            if wait_s <= 0:
                return
