"""A two-way line of messages: what stdio and the memory transport have in common."""

from __future__ import annotations

from typing import Protocol


class Duplex(Protocol):
    """Carries whole messages both ways. One reader; any number of senders at once."""

    async def send(self, message: bytes) -> None:
        """Hand over one message, no newline inside. `anyio.BrokenResourceError` once the peer is gone;
        a line made of requests may raise `ConnectionLost` for a message that was not taken."""
        ...

    async def receive(self) -> bytes:
        """The next message. Raises `anyio.EndOfStream` at the end; `MessageTooLong` for an over-long one,
        after which reading goes on with the next message."""
        ...

    async def aclose(self) -> None: ...


class MessageTooLong(Exception):
    """A peer sent a message over the limit; it was skipped. `ends`: a little of its start and its end."""

    def __init__(self, limit: int, ends: bytes = b"") -> None:
        super().__init__(f"a message is longer than {limit} bytes")
        self.limit = limit
        self.ends = ends
