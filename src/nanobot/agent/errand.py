"""Work that runs in somebody else's task, so that whoever waits for it can stop waiting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


class Errand(Generic[T]):
    """`work`, to be run by a task that outlives the one who waits for it.

    A cancelled errand ends when its work reacts to that; whoever cannot wait so long need not.
    """

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self.outcome: T | None = None
        """What the work gave; None while it runs and when it was cancelled."""

    async def run(self) -> None:
        try:
            with self._scope:
                self.outcome = await self._work()
        finally:
            self.ended.set()

    def cancel(self) -> None:
        self._scope.cancel()
