"""Messages as lines: bytes in, whole lines out, in linear time and bounded memory."""

from __future__ import annotations

from collections import deque

from nanobot.wire.duplex import MessageTooLong
from nanobot.wire.mending import EDGE


class LineSplitter:
    """Cuts a byte stream at LF. A line over `max_bytes` is dropped while it arrives, not kept.

    CR before the LF belongs to the line end; empty lines are no lines.
    """

    __slots__ = ("_dropping", "_end", "_held", "_lines", "_max_bytes", "_size", "_start")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: list[bytes] = []  # pieces of a line whose end has not arrived
        self._size = 0
        self._dropping = False
        self._start = self._end = b""  # of a line that is dropped
        self._lines: deque[bytes | MessageTooLong] = deque()

    def feed(self, chunk: bytes) -> None:
        """Take in the next bytes, cut anywhere."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._hold(chunk[start:end])
            self._finish()
            start = end + 1
        self._hold(chunk[start:] if start else chunk)

    def finish(self) -> None:
        """Take what is held as the last line: the stream has ended."""
        self._finish()

    def next(self) -> bytes | None:
        """The next whole line, None if more bytes are needed. Raises `MessageTooLong` for a dropped one."""
        if not self._lines:
            return None
        line = self._lines.popleft()
        if isinstance(line, MessageTooLong):
            raise line
        return line

    def _hold(self, piece: bytes) -> None:
        if not piece:
            return
        if self._dropping:
            self._end = (self._end + piece[-EDGE:])[-EDGE:]
            return
        self._held.append(piece)
        self._size += len(piece)
        if self._size > self._max_bytes:
            self._dropping = True
            self._start, self._end = self._held[0][:EDGE], piece[-EDGE:]
            self._held.clear()

    def _finish(self) -> None:
        if self._dropping:
            self._lines.append(MessageTooLong(self._max_bytes, self._start + self._end))
        elif line := b"".join(self._held).removesuffix(b"\r"):
            self._lines.append(line)
        self._held.clear()
        self._size = 0
        self._dropping = False
