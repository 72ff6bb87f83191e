"""Work in threads that nobody has to wait for: not whoever wanted it, and not the end of the program."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


class LooseThreads:
    """Threads of code that may never return. Python cannot stop one; it keeps its place until it ends."""

    def __init__(self, most: int, name: str) -> None:
        """`most` run at once; what comes on top waits for a place."""
        self._places = anyio.CapacityLimiter(most)
        self._name = name

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` gives or raises. When this is cancelled, `work` goes on without anybody."""
        place = object()
        await self._places.acquire_on_behalf_of(place)
        loop = asyncio.get_running_loop()
        # An outcome, never an exception, is put into the future: nobody might be left to retrieve it.
        ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

        def settle(outcome: tuple[Any, BaseException | None]) -> None:
            self._places.release_on_behalf_of(place)
            if not ended.done():
                ended.set_result(outcome)

        def body() -> None:
            try:
                outcome = context.run(work), None
            except BaseException as e:
                outcome = None, e
            with suppress(RuntimeError):  # the loop has ended before the work
                loop.call_soon_threadsafe(settle, outcome)

        context = copy_context()
        threading.Thread(target=body, name=self._name, daemon=True).start()
        result, error = await ended
        if error is not None:
            raise error
        return result
