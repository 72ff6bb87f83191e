"""The application with what the web chat asks and is told in the log. Composed only on demand."""

from __future__ import annotations

import logging
from itertools import count
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nanobot.hub.overheard import MAX_BYTES, Shown
from nanobot.logs import OVERHEARD

log = logging.getLogger(OVERHEARD)

_DATA: Final = b"data: "


class OverheardPages:
    """`inner`, requests below `/api/` and at `/mcp/ui` and their answers being told in the log."""

    def __init__(self, inner: ASGIApp, shown: Shown) -> None:
        self._inner = inner
        self._shown = shown
        self._numbers = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope.get("path", "")
        if scope["type"] != "http" or not (path.startswith("/api/") or path == "/mcp/ui"):
            await self._inner(scope, receive, send)
            return
        number = next(self._numbers)
        asked, answered = bytearray(), bytearray()
        status, is_stream = 0, False

        def note(way: str, said: str) -> None:
            log.debug("%s page", way, extra={"path": path, "number": number, "said": said})

        async def receive_noting() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                _keep(asked, message.get("body", b""))
                if not message.get("more_body", False) and asked:
                    note("from", self._shown(bytes(asked)))
                    asked.clear()
            return message

        async def send_noting(message: Message) -> None:
            nonlocal status, is_stream
            if message["type"] == "http.response.start":
                status = message["status"]
                kinds = [value for name, value in message.get("headers", ()) if name == b"content-type"]
                is_stream = any(kind.startswith(b"text/event-stream") for kind in kinds)
            elif is_stream:
                if body := message.get("body", b""):
                    note("to", self._events(body))
            else:
                _keep(answered, message.get("body", b""))
                if not message.get("more_body", False):
                    note("to", f"{status} {self._shown(bytes(answered))}")
            await send(message)

        note("from", scope["method"])
        await self._inner(scope, receive_noting, send_noting)

    def _events(self, body: bytes) -> str:
        """Events as they are written, the JSON in each made fit to be shown."""
        lines = body.rstrip().split(b"\n")
        return "\n".join(
            f"data: {self._shown(line[len(_DATA) :])}"
            if line.startswith(_DATA)
            else line.decode("utf-8", "replace")
            for line in lines
        )


def _keep(kept: bytearray, more: bytes) -> None:
    """Keep no more than what shows that there was too much."""
    kept += more[: MAX_BYTES + 1 - len(kept)]
