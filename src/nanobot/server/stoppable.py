"""The application, whose requests may be cut off when the program stops and has no more time for them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_STOPPING: Final = (
    b'{"error":{"code":"stopping","message":"nanobot is stopping; try again in a few seconds."}}'
)
_REFUSAL: Final[Message] = {
    "type": "http.response.start",
    "status": 503,
    "headers": [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(_STOPPING)),
        (b"retry-after", b"5"),
        (b"connection", b"close"),
    ],
}


class Stoppable:
    """`inner`. A request whose task is cancelled gets an answer all the same: 503, or the end of its stream.

    Only the HTTP server cancels such a task, and only when it stops.
    """

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._inner(scope, receive, send)
        except asyncio.CancelledError:
            try:
                await send(_REFUSAL)
                end = _STOPPING
            except RuntimeError:  # the answer has begun
                end = b""
            with suppress(RuntimeError):  # or is complete, or of an announced length
                await send({"type": "http.response.body", "body": end})
