"""Work that somebody else's task does for us, so that it can be left behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


class Errand(Generic[T]):
    """`work`, to be run by a task that outlives the one who waits for it.

    A cancelled errand ends when its work lets it: whoever cannot wait that long may go.
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
