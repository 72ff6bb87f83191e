"""One stream of server-sent events towards a client, which may lose its connection and come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from nanobot.sse import FAREWELL, format_event
from nanobot.wire.eventlog import EventLog, LoggedEvent
from nanobot.wire.outbox import Outbox, one_line

RETRY_MS: Final = 3000
KEEP_ALIVE: Final = b": keep-alive\n\n"
REPLAY_LOST: Final = b": replay-lost\n\n"

Clock = Callable[[], float]


class EventStream:
    """Messages as numbered events; at most one reader at a time.

    With a `log`, events have ids `<stream>-<number>` and outlive their reader. Without one (modern era)
    there are no ids and what nobody reads is lost.
    """

    __slots__ = ("_attached", "_clock", "_ended", "_life", "_log", "_numbered", "id", "reader")

    def __init__(self, id: int, log: EventLog | None, clock: Clock, life: str = "") -> None:
        """`life` is the third part of the ids of a session that was restored: what went before is gone."""
        self.id = id
        self._life = f"-{life}" if life else ""
        self.reader: Outbox | None = None
        self._log = log
        self._clock = clock
        self._numbered = 0
        self._ended = False
        self._attached: anyio.Event | None = None

    def send(self, message: bytes, key: str | None = None, *, last: bool = False) -> None:
        """Send one JSON-RPC message. A reader too slow for it gets what waits for it, and then the end."""
        if self._ended:
            return
        message = one_line(message)
        if self._log is None:
            frame = format_event(message)
        else:
            self._numbered += 1
            frame = format_event(message, id=f"{self.id}-{self._numbered}{self._life}")
            self._log.append(LoggedEvent(self.id, self._numbered, frame, self._clock(), last))
        if self.reader is not None and not self.reader.put(frame, key, must=last):
            self.reader.close()
            self.reader = None
        if last:
            self.end()

    def attach(self, *, prime: bool) -> Outbox:
        """The outbox of a new reader, who takes the place of an older one. `prime`: start with an id."""
        if self.reader is not None:
            self.reader.close()
        self.reader = Outbox()
        if prime:
            self.reader.put(format_event(b"", id=f"{self.id}-{self._numbered}{self._life}", retry=RETRY_MS))
        if self._ended:
            self.reader.close()
        if self._attached is not None:
            self._attached.set()
            self._attached = None
        return self.reader

    def resume(self, number: int) -> Outbox:
        """The outbox of a reader who has seen the events up to `number`."""
        reader = self.attach(prime=False)
        replay = self._log.after(self.id, number, now=self._clock()) if self._log is not None else None
        if replay is None or replay.lost:
            if number < self._numbered:
                reader.put(REPLAY_LOST, must=True)
        if replay is not None:
            for event in replay.events:
                reader.put(event.frame, must=True)
        return reader

    def detach(self, reader: Outbox) -> None:
        """`reader` has lost its connection."""
        reader.close(drop=True)
        if self.reader is reader:
            self.reader = None

    async def attached(self) -> None:
        """Wait until there is a reader."""
        while self.reader is None:
            self._attached = self._attached or anyio.Event()
            await self._attached.wait()

    def say_farewell(self) -> None:
        """Tell the reader that the stream is about to end because we stop."""
        if self.reader is not None and not self._ended:
            self.reader.put(FAREWELL, must=True)

    def end(self) -> None:
        """Nothing more will be sent. The reader gets what waits for it, then the end."""
        self._ended = True
        if self.reader is not None:
            self.reader.close()
