"""The sessions of legacy HTTP clients: who they are, what is under way for them, and when they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from nanobot.config.model import SessionSettings
from nanobot.errors import Busy
from nanobot.ids import new_uuid
from nanobot.wire.event_stream import REPLAY_LOST, Clock, EventStream
from nanobot.wire.eventlog import EventLog
from nanobot.wire.exchange import Exchange
from nanobot.wire.outbox import Outbox
from nanobot.wire.peer import Peer
from nanobot.wire.questions import Questions
from nanobot.wire.rpc import Id
from nanobot.wire.versions import is_at_least

STANDALONE: Final = 0
"""Number of the stream that a GET opens; those of POSTs count from 1."""


class Session:
    """One legacy client. Belongs to the account that opened it."""

    __slots__ = ("_clock", "_log", "_opened", "account", "header", "id", "peer", "questions", "requests",
                 "streams", "used_at")  # fmt: skip

    def __init__(self, account: str, clock: Clock) -> None:
        self.id = new_uuid()
        self.account = account
        self.header = (b"mcp-session-id", self.id.encode())
        self.peer = Peer(account=account, session=self.id)
        self.requests: dict[Id, Exchange] = {}
        self.questions = Questions()
        self.streams: dict[int, EventStream] = {}
        self.used_at = clock()
        self._clock = clock
        self._log: EventLog | None = None
        self._opened = STANDALONE

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
        return EventStream(number, self._log, self._clock)


class Attendance(Protocol):
    """Told which sessions there are, so that what is kept for one of them goes when it goes."""

    def began(self, account: str, session: str) -> None: ...

    def ended(self, account: str, session: str) -> None: ...


class Sessions:
    """All living sessions. One that nothing happens in for `idle_timeout_s` ends."""

    def __init__(self, settings: SessionSettings, clock: Clock, ended: Callable[[Session], None]) -> None:
        """`ended` is told of each session after it is gone."""
        self._settings = settings
        self._clock = clock
        self._ended = ended
        self._living: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._living)

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self._living.values()))

    def make_room(self) -> None:
        """Raises `Busy` if there can be no further session now."""
        if len(self._living) < self._settings.max_live:
            return
        self.sweep()
        if len(self._living) >= self._settings.max_live:
            raise Busy(f"All {self._settings.max_live} sessions are in use; try again in a few seconds.")

    def add(self, session: Session) -> None:
        """Raises `Busy` as `make_room` does."""
        self.make_room()
        self._living[session.id] = session

    def find(self, id: str, account: str) -> Session | None:
        """The living session `id` of `account`."""
        session = self._living.get(id)
        if session is None or session.account != account:
            return None
        if self._is_over(session, self._clock()):
            self.end(session, "session expired")
            return None
        return session

    def end(self, session: Session, reason: str) -> None:
        if self._living.pop(session.id, None) is not None:
            session.end(reason)
            self._ended(session)

    def sweep(self) -> None:
        """End what has been idle for too long."""
        now = self._clock()
        for session in self:
            if self._is_over(session, now):
                self.end(session, "session expired")
            else:
                session.tidy(now)

    def _is_over(self, session: Session, now: float) -> bool:
        return now - session.used_at > self._settings.idle_timeout_s and not session.is_busy
