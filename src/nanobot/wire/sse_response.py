"""An HTTP answer that is an event stream: written as messages come, watched for the client's leaving."""

from __future__ import annotations

from typing import Final

import anyio

from nanobot.aio import task_group
from nanobot.wire.event_stream import KEEP_ALIVE
from nanobot.wire.http_request import Header, Receive, Send
from nanobot.wire.outbox import Outbox

KEEP_ALIVE_S: Final = 15.0
STALLED_S: Final = 60.0
"""A client that takes nothing for this long has left, whatever its connection says."""

_HEADERS: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


async def send_events(outbox: Outbox, receive: Receive, send: Send, headers: tuple[Header, ...] = ()) -> bool:
    """Send what comes through `outbox` until it is closed and empty; False if the client left before."""
    complete = False

    async def write() -> None:
        nonlocal complete
        await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *headers]})
        while True:
            body = KEEP_ALIVE
            with anyio.move_on_after(KEEP_ALIVE_S):
                body = b"".join(await outbox.take())
            if not body:
                break
            with anyio.move_on_after(STALLED_S) as stalled:
                await send({"type": "http.response.body", "body": body, "more_body": True})
            if stalled.cancelled_caught:
                return
        await send({"type": "http.response.body", "body": b""})
        complete = True

    try:
        async with task_group() as group:
            group.start_soon(_leave_with_client, receive, group.cancel_scope)
            await write()
            group.cancel_scope.cancel()
    except OSError:  # how some servers report a client that has left
        complete = False
    return complete


async def _leave_with_client(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
