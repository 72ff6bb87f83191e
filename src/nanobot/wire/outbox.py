"""What waits to be sent to one reader: bounded, so that a slow reader delays nobody."""

from __future__ import annotations

from collections import deque
from typing import Final

import anyio

MAX_MESSAGES: Final = 1000
MAX_BYTES: Final = 8 * 1024 * 1024


def one_line(message: bytes) -> bytes:
    """The same JSON without line ends. Relayed JSON may have them, but only between tokens."""
    if b"\n" in message or b"\r" in message:
        return message.replace(b"\r", b" ").replace(b"\n", b" ")
    return message


class Outbox:
    """Messages for one reader, in order. Any number of writers, who never wait.

    A message with a `key` replaces an earlier one of the same key when space runs short: of several
    "the list changed", or several reports of one progress, only the last one matters.
    """

    __slots__ = ("_bytes", "_closed", "_room", "_waiting", "_wake")

    def __init__(self) -> None:
        self._waiting: deque[tuple[bytes, str | None]] = deque()
        self._bytes = 0
        self._closed = False
        self._wake: anyio.Event | None = None  # set while the reader waits
        self._room: anyio.Event | None = None  # set while somebody waits for space

    def put(self, message: bytes, key: str | None = None, *, must: bool = False) -> bool:
        """Add a message. False if there is no space for it (unless it `must` go) or the reader has left."""
        if self._closed:
            return False
        if self._full(len(message)) and not must:
            self._coalesce(key)
            if self._full(len(message)):
                return False
        self._waiting.append((message, key))
        self._bytes += len(message)
        self._wake_reader()
        return True

    async def take(self) -> list[bytes]:
        """All that waits, at least one message; empty once closed and read to the end."""
        while not self._waiting:
            if self._closed:
                return []
            self._wake = anyio.Event()
            await self._wake.wait()
        messages = [message for message, _ in self._waiting]
        self._waiting.clear()
        self._bytes = 0
        if self._room is not None:
            self._room.set()
            self._room = None
        return messages

    async def has_room(self) -> None:
        """Wait until the reader has caught up."""
        while self._full(0) and not self._closed:
            self._room = self._room or anyio.Event()
            await self._room.wait()

    def close(self, *, drop: bool = False) -> None:
        """Nothing more will come. The reader still gets what waits, unless it is to `drop`."""
        self._closed = True
        if drop:
            self._waiting.clear()
        self._wake_reader()
        if self._room is not None:
            self._room.set()

    def _full(self, more: int) -> bool:
        # One message of any size is let through: the limit is for a backlog.
        return bool(self._waiting) and (len(self._waiting) >= MAX_MESSAGES or self._bytes + more > MAX_BYTES)

    def _coalesce(self, coming: str | None) -> None:
        kept: deque[tuple[bytes, str | None]] = deque()
        seen = {coming} if coming is not None else set[str]()
        for message, key in reversed(self._waiting):
            if key is None or key not in seen:
                kept.appendleft((message, key))
            if key is not None:
                seen.add(key)
        self._waiting = kept
        self._bytes = sum(len(message) for message, _ in kept)

    def _wake_reader(self) -> None:
        if self._wake is not None:
            self._wake.set()
            self._wake = None
