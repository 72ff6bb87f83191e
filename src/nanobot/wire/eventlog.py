"""What was sent on the event streams of one session, kept for a while so that a client can resume."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

MAX_EVENTS: Final = 1000
MAX_BYTES: Final = 16 * 1024 * 1024
MAX_AGE_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event as it goes over the wire. `number` counts from 1 on its stream; `last` ends the stream."""

    stream: int
    number: int
    frame: bytes
    at: float
    last: bool


@dataclass(frozen=True, slots=True)
class Replay:
    """What followed an event. `lost`: something between was forgotten. `ended`: nothing will follow."""

    events: tuple[LoggedEvent, ...]
    lost: bool
    ended: bool


class EventLog:
    """The newest events of all streams of one session: at most 1,000, 16 MiB, 10 minutes."""

    __slots__ = ("_bytes", "_events")

    def __init__(self) -> None:
        self._events: deque[LoggedEvent] = deque()
        self._bytes = 0

    def append(self, event: LoggedEvent) -> None:
        self._events.append(event)
        self._bytes += len(event.frame)
        self.forget(event.at)

    def after(self, stream: int, number: int, *, now: float) -> Replay | None:
        """What followed event `number` of `stream`; None if nothing of that stream is known any more."""
        self.forget(now)
        known = [event for event in self._events if event.stream == stream]
        if not known:
            return None
        following = tuple(event for event in known if event.number > number)
        lost = bool(following) and following[0].number > number + 1
        return Replay(following, lost, ended=known[-1].last)

    def forget(self, now: float) -> None:
        """Drop what is over the limits at time `now`."""
        events = self._events
        while events and (
            len(events) > MAX_EVENTS or self._bytes > MAX_BYTES or now - events[0].at > MAX_AGE_S
        ):
            self._bytes -= len(events.popleft().frame)
