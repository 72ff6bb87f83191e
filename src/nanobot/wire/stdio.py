"""This process's own stdin and stdout as a line of messages."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from queue import SimpleQueue
from typing import Final

import anyio
from anyio.abc import TaskStatus

from nanobot.wire.lines import LineSplitter

log = logging.getLogger(__name__)

CHUNK: Final = 64 * 1024
AHEAD: Final = 4
"""How many chunks may be read before anybody wants them."""


@asynccontextmanager
async def own_stdio(max_message_bytes: int) -> AsyncGenerator[OwnStdio]:
    """The two streams as a `Duplex`, for as long as the block lasts.

    Meanwhile everything else in the process sees an empty stdin, and what it prints goes to stderr: a
    stray `print`, here or in a child, cannot damage the protocol. Enter this once per process.
    """
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    stdio = OwnStdio(source, sink, max_message_bytes)
    try:
        yield stdio
    finally:
        await stdio.aclose()
        sys.stdout.flush()
        os.dup2(source, 0)
        os.dup2(sink, 1)


class OwnStdio:
    """Reads and writes file descriptors in two threads; satisfies `Duplex`.

    Threads, because stdin may be a pipe, a terminal or a file, and a non-blocking mode would be shared
    with whoever else holds the same terminal. They are daemons: a read that never returns must not keep the
    process alive.
    """

    def __init__(self, source: int, sink: int, max_message_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._source = source
        self._sink = sink
        self._lines = LineSplitter(max_message_bytes)
        self._chunks: deque[bytes] = deque()  # an empty one is the end
        self._arrived = anyio.Event()
        self._ahead = threading.Semaphore(AHEAD)
        self._outgoing: SimpleQueue[tuple[bytes, anyio.Event] | None] = SimpleQueue()
        self._is_broken = False
        self._is_over = False
        threading.Thread(target=self._read, name="stdin", daemon=True).start()
        threading.Thread(target=self._write, name="stdout", daemon=True).start()

    async def send(self, message: bytes) -> None:
        written = anyio.Event()
        self._outgoing.put((message + b"\n", written))
        await written.wait()
        if self._is_broken:
            raise anyio.BrokenResourceError

    async def receive(self) -> bytes:
        while (line := self._lines.next()) is None:
            if self._is_over:
                raise anyio.EndOfStream
            while not self._chunks:
                self._arrived = anyio.Event()
                await self._arrived.wait()
            chunk = self._chunks.popleft()
            self._ahead.release()
            if chunk:
                self._lines.feed(chunk)
            else:
                self._lines.finish()
                self._is_over = True
        return line

    async def finish_on_signals(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Take the first SIGINT or SIGTERM for the end of stdin; the next does what it does anywhere."""
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for received in signals:
                log.info("stopping", extra={"signal": received.name})
                self._take(b"")
                break

    async def aclose(self) -> None:
        self._outgoing.put(None)

    def _read(self) -> None:
        chunk = b"more"
        while chunk:
            self._ahead.acquire()
            try:
                chunk = os.read(self._source, CHUNK)
            except OSError:
                chunk = b""
            if not self._call(self._take, chunk):
                return

    def _write(self) -> None:
        while (item := self._outgoing.get()) is not None:
            rest, written = memoryview(item[0]), item[1]
            try:
                while rest and not self._is_broken:
                    rest = rest[os.write(self._sink, rest) :]
            except OSError:
                self._is_broken = True
            self._call(written.set)

    def _take(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._arrived.set()

    def _call(self, function: Callable[..., object], *args: bytes) -> bool:
        """Call `function` in the event loop; False if there is none any more."""
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            return False
        return True
