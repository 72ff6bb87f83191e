"""How many turns run at once in this process."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext

import anyio


class Slots:
    """At most `limit` turns, the longest waiting first; None: any number.

    Work inside a turn uses the slot of that turn, so that a limit of one cannot block itself.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._free = anyio.Semaphore(limit, fast_acquire=True) if limit else None

    def held(self) -> AbstractAsyncContextManager[object]:
        """Have a slot inside the block."""
        return self._free if self._free is not None else nullcontext()
