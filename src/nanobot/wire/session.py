"""The session of one legacy HTTP client: who it is, and what is under way for it."""

from __future__ import annotations

import secrets
from typing import Final

from nanobot.ids import new_uuid
from nanobot.wire.event_stream import REPLAY_LOST, Clock, EventStream
from nanobot.wire.eventlog import EventLog
from nanobot.wire.exchange import Exchange
from nanobot.wire.home import SessionRecord
from nanobot.wire.outbox import Outbox
from nanobot.wire.peer import Peer
from nanobot.wire.questions import Questions
from nanobot.wire.rpc import Id
from nanobot.wire.versions import is_at_least

STANDALONE: Final = 0
"""Number of the stream that a GET opens; those of POSTs count from 1."""


class Session:
    """One legacy client. Belongs to the account that opened it.

    A session that was restored has a `life` of its own, which marks the ids of its events and questions:
    those of an earlier life mean nothing in this one, though their numbers come again.
    """

    __slots__ = ("_clock", "_life", "_log", "_opened", "account", "header", "id", "is_confirmed", "peer",
                 "questions", "requests", "revision", "saved_at", "seen_at", "streams",
                 "used_at")  # fmt: skip

    def __init__(self, account: str, clock: Clock, id: str | None = None) -> None:
        """`id` is that of a session that is restored."""
        self.id = id or new_uuid()
        self._life = secrets.token_hex(3) if id else ""
        self.account = account
        self.header = (b"mcp-session-id", self.id.encode())
        self.peer = Peer(account=account, session=self.id)
        self.requests: dict[Id, Exchange] = {}
        self.questions = Questions(self._life)
        self.streams: dict[int, EventStream] = {}
        self.used_at = self.seen_at = self.saved_at = clock()
        """When it was last used, found to be current, and saved."""
        self.revision = 0
        """That of its record; 0 while there is none."""
        self.is_confirmed = False
        """Whether the client has used it: one that only shook hands may be gone, and is not kept."""
        self._clock = clock
        self._log: EventLog | None = None
        self._opened = STANDALONE

    @staticmethod
    def restored(record: SessionRecord, clock: Clock) -> Session:
        """The session as it was saved. Raises `ValueError` for a record that we do not understand."""
        session = Session(record.account, clock, record.id)
        session.is_confirmed = True
        session.refresh(record)
        return session

    def refresh(self, record: SessionRecord) -> None:
        """Take in what another process has saved. Raises as `restored`."""
        self.peer.restore(record.state)
        self.revision = record.revision

    def is_of_this_life(self, life: bytes) -> bool:
        """Whether the third part of an event id is ours."""
        return life == self._life.encode()

    @property
    def is_busy(self) -> bool:
        """Whether something is under way: a request, or a stream that somebody reads."""
        return bool(self.requests) or any(stream.reader is not None for stream in self.streams.values())

    @property
    def primes(self) -> bool:
        """Whether the client understands an event that carries an id and no message."""
        return is_at_least(self.peer.caller.version, "2025-11-25")

    @property
    def standalone(self) -> EventStream | None:
        """The stream for what belongs to no request, once the client has opened it."""
        return self.streams.get(STANDALONE)

    def open_standalone(self) -> EventStream:
        stream = self.streams.get(STANDALONE)
        if stream is None:
            stream = self.streams[STANDALONE] = self._new_stream(STANDALONE)
        return stream

    def open_stream(self) -> EventStream:
        """A stream for the answer to one request."""
        self._opened += 1
        stream = self.streams[self._opened] = self._new_stream(self._opened)
        return stream

    def close_stream(self, stream: EventStream) -> None:
        """`stream` has carried its last event; that can still be replayed."""
        self.streams.pop(stream.id, None)

    def resume(self, stream: int, number: int) -> tuple[EventStream | None, Outbox]:
        """What followed event `number` of `stream`, and then the stream itself while it lives."""
        living = self.streams.get(stream)
        if living is not None:
            return living, living.resume(number)
        replay = self._log.after(stream, number, now=self._clock()) if self._log is not None else None
        outbox = Outbox()
        if replay is None or replay.lost:
            outbox.put(REPLAY_LOST, must=True)
        if replay is not None:
            for event in replay.events:
                outbox.put(event.frame, must=True)
        outbox.close()
        return None, outbox

    def end(self, reason: str) -> None:
        """Cancel what is under way and close every stream."""
        for exchange in tuple(self.requests.values()):
            exchange.cancel(reason)
        self.questions.give_up(reason)
        if (standalone := self.streams.pop(STANDALONE, None)) is not None:
            standalone.end()

    def tidy(self, now: float) -> None:
        """Forget events that are too old to be asked for."""
        if self._log is not None:
            self._log.forget(now)

    def _new_stream(self, number: int) -> EventStream:
        if self._log is None:
            self._log = EventLog()
        return EventStream(number, self._log, self._clock, self._life)
