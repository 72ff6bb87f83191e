"""An answer that is a stream of server-sent events, and what ends it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio import CancelScope

from nanobot.aio import task_group
from nanobot.server.exchange import Exchange
from nanobot.server.problems import Header
from nanobot.sse import FAREWELL

KEEP_ALIVE_S: Final = 15.0

STREAM_HEADERS: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

KEEP_ALIVE: Final = b": keep-alive\n\n"
END: Final = {"type": "http.response.body"}

Write = Callable[[bytes], Awaitable[None]]
"""Send formatted events. Waits while the client is slow to read."""


class Closing:
    """Tells all open streams that the program stops; each ends where it is and clients come back later."""

    def __init__(self) -> None:
        self._scopes: set[CancelScope] = set()
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True
        for scope in self._scopes:
            scope.cancel()

    def add(self, scope: CancelScope) -> None:
        self._scopes.add(scope)
        if self.is_closed:
            scope.cancel()

    def discard(self, scope: CancelScope) -> None:
        self._scopes.discard(scope)


@asynccontextmanager
async def event_stream(
    http: Exchange, *, closing: Closing | None = None, keep_alive_s: float = KEEP_ALIVE_S
) -> AsyncGenerator[Write]:
    """Answer with events for as long as the block runs; a comment every `keep_alive_s` seconds keeps it open.

    When the client leaves (or `closing` says so) the block is cancelled, and that cancellation ends here.
    """
    is_over = False

    async def write(events: bytes) -> None:
        await http.send({"type": "http.response.body", "body": events, "more_body": True})

    async def accompany() -> None:
        """Notice that the client left, and send comments meanwhile."""
        while True:
            with anyio.move_on_after(keep_alive_s):
                while (await http.receive())["type"] != "http.disconnect":
                    pass
                if not is_over:
                    company.cancel_scope.cancel()
                return
            if not is_over:
                await write(KEEP_ALIVE)

    await http.send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
    async with task_group() as company:
        if closing is not None:
            closing.add(company.cancel_scope)
        try:
            company.start_soon(accompany)
            yield write
            is_over = True
            # After a complete answer `receive` says disconnect, so `accompany` ends without being cancelled.
            await http.send(END)
        finally:
            if closing is not None:
                closing.discard(company.cancel_scope)
    if not is_over:
        if closing is not None and closing.is_closed:
            await write(FAREWELL)
        await http.send(END)
