"""HTTP/1.1 on one connection, with a limit on what precedes a body."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MAX_HEAD_BYTES: Final = 64 * 1024
"""Request line and headers together, beyond the first read from the socket."""

MAX_HELD: Final = 64 * 1024
"""More than this is not held back until the end of the step."""

UPGRADE: Final = "nanobot.upgrade"
"""Extension of a scope: an `Upgrade`."""

_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)


class Corked:
    """A transport that sends at the end of the current step of the loop what was written during it.

    uvicorn writes the head and the body of an answer one after the other; together they are one system call.
    And the answers to all requests that arrived together leave together: the first wakes the reader up,
    which costs more than the sending, and the others find it awake.
    """

    __slots__ = ("_held", "_loop", "_size", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self.flush)
        self._held.append(data)
        self._size += len(data)
        if self._size > MAX_HELD:
            self.flush()

    def flush(self) -> None:
        if self._held:
            data = b"".join(self._held)
            self._held.clear()
            self._size = 0
            self._transport.write(data)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Upgrade:
    """The connection below a request that asked for WebSocket, for a handler that wants to have it.

    It stands in `scope["extensions"]` under `UPGRADE`. A handler that does not `take` it answers as usual,
    and the connection ends with that.
    """

    def __init__(self, protocol: HttpProtocol) -> None:
        self._protocol = protocol
        self._cycle: RequestResponseCycle | None = None
        self._arrived = bytearray()
        self._news = asyncio.Event()
        self._is_over = False

    def belongs_to(self, cycle: RequestResponseCycle) -> None:
        cycle.keep_alive = False
        self._cycle = cycle

    def take(self, head: bytes) -> None:
        """Answer with `head`, to its last byte; from here on there is no HTTP on the connection any more."""
        assert self._cycle is not None
        self._cycle.response_started = self._cycle.response_complete = True
        self._protocol.transport.write(head)

    async def receive(self) -> bytes:
        """What came from the client; b"" when it is gone."""
        while not self._arrived and not self._is_over:
            self._news.clear()
            self._protocol.flow.resume_reading()
            await self._news.wait()
        data = bytes(self._arrived)
        self._arrived.clear()
        return data

    async def send(self, data: bytes) -> None:
        """Waits while the client is slow to read."""
        await self._protocol.flow.drain()
        if not self._is_over:
            self._protocol.transport.write(data)

    def close(self) -> None:
        self._protocol.transport.close()

    # For the protocol

    def feed(self, data: bytes) -> None:
        self._arrived += data
        if len(self._arrived) > MAX_HELD:
            self._protocol.flow.pause_reading()
        self._news.set()

    def end(self) -> None:
        self._is_over = True
        self._news.set()


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which by itself would collect headers without end."""

    _in_head = False
    _head_bytes = 0
    _upgrade: Upgrade | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(cast("asyncio.Transport", Corked(transport, self.loop)))

    def data_received(self, data: bytes) -> None:
        if self._upgrade is not None:  # the parser has nothing to say any more
            self._upgrade.feed(data)
            return
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.transport.write(_TOO_LARGE)
                self.transport.close()

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value.rstrip(b" \t"))  # the parser takes off only what comes before a value

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._get_upgrade() != b"websocket":
            super().on_headers_complete()
            return
        self._upgrade = Upgrade(self)
        cast("dict[str, Any]", self.scope)["extensions"] = {UPGRADE: self._upgrade}
        super().on_headers_complete()
        self._upgrade.belongs_to(self.cycle)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._upgrade is not None:
            self._upgrade.end()

    def _unsupported_upgrade_warning(self) -> None:
        """Whoever answers the request says what can be done."""
