"""From one running turn to any number of readers, none of which can hold it up.

The events of a turn are kept once, in one reel; a reader is a place in it. Deltas of one item share an entry,
so a reader that comes late or lags gets them joined, and what is kept grows with the answer, not with the
number of its readers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import anyio

from nanobot.agent.events import Body, Delta, Event
from nanobot.llm.model import ArgumentsDelta, ReasoningDelta, TextDelta

FARTHEST_BEHIND: Final = 10_000
"""How many entries of finished turns a reader may lag behind. Beyond that it is dropped, or it would keep
all of them in memory."""


class _Stretch:
    """Consecutive deltas of one item."""

    __slots__ = ("head", "pieces")

    def __init__(self, head: Delta) -> None:
        self.head = head
        self.pieces: list[str] = [head.delta.text]

    def from_piece(self, start: int) -> Delta:
        text = "".join(self.pieces[start:])
        match self.head.delta:
            case TextDelta(item_id=item_id):
                return Delta(self.head.message_id, TextDelta(item_id, text))
            case ReasoningDelta(item_id=item_id):
                return Delta(self.head.message_id, ReasoningDelta(item_id, text))
            case ArgumentsDelta(item_id=item_id, call_id=call_id, name=name):
                return Delta(self.head.message_id, ArgumentsDelta(item_id, call_id, name, text))


@dataclass(slots=True, eq=False)
class _Reel:
    """The events of one turn. `sequences[i]` belongs to `entries[i]`, for a stretch to its first piece."""

    entries: list[_Stretch | Body] = field(default_factory=list["_Stretch | Body"])
    sequences: list[int] = field(default_factory=list[int])
    next: _Reel | None = None


class Broadcast:
    """The events of one thread. `sequence` is that of the newest event; it only rises.

    `emit` neither waits nor fails. `cut` ends the reel of a turn: who attaches later starts after it.
    """

    def __init__(self, thread_id: str, sequence: int = 0) -> None:
        self.thread_id = thread_id
        self.sequence = sequence
        self.readers: set[Reader] = set()
        self.reel = _Reel()
        self._stretch: _Stretch | None = None
        self._waiting: list[anyio.Event] = []

    def emit(self, body: Body) -> None:
        self.sequence += 1
        if type(body) is Delta:
            delta = body.delta
            stretch = self._stretch
            if stretch is not None:
                head = stretch.head.delta
                if head.item_id == delta.item_id and type(head) is type(delta):
                    stretch.pieces.append(delta.text)
                    if self._waiting:
                        self.wake()
                    return
            self._stretch = entry = _Stretch(body)
        else:
            self._stretch = None
            entry = body
        self.reel.entries.append(entry)
        self.reel.sequences.append(self.sequence)
        if self._waiting:
            self.wake()

    def cut(self) -> None:
        self._stretch = None
        self.reel.next = fresh = _Reel()
        for reader in [*self.readers]:
            reader.fall_behind(len(self.reel.entries))
        self.reel = fresh

    async def something_new(self) -> None:
        event = anyio.Event()
        self._waiting.append(event)
        await event.wait()

    def wake(self) -> None:
        """Let every reader look again."""
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            event.set()


class Reader:
    """One place in the events of a thread, from the start of the turn that runs. Ends when it is dropped."""

    def __init__(self, broadcast: Broadcast) -> None:
        self._broadcast = broadcast
        self._reel: _Reel = broadcast.reel
        self._entry = 0
        self._piece = 0  # of the entry, if that is a stretch: how many pieces were read
        self._behind = 0  # entries of finished reels that are still to be read, at most
        self._gone = False
        broadcast.readers.add(self)

    def next_ready(self) -> Event | None:
        """The next event if there is one by now."""
        while True:
            reel = self._reel
            if self._entry < len(reel.entries):
                entry, sequence = reel.entries[self._entry], reel.sequences[self._entry]
                if not isinstance(entry, _Stretch):
                    self._entry += 1
                    return Event(sequence, self._broadcast.thread_id, entry)
                count = len(entry.pieces)
                if self._piece < count:
                    body = entry.from_piece(self._piece)
                    self._piece = count
                    return Event(sequence + count - 1, self._broadcast.thread_id, body)
                if self._entry + 1 == len(reel.entries) and reel.next is None:
                    return None  # the stretch may still grow
                self._entry, self._piece = self._entry + 1, 0
            elif reel.next is not None:
                self._reel, self._entry, self._piece = reel.next, 0, 0
                if self._reel.next is None:
                    self._behind = 0
            else:
                return None

    def fall_behind(self, entries: int) -> None:
        """A turn of so many entries is over. A reader that has too many still to read is dropped."""
        if self._reel.next is not None and self._entry == len(self._reel.entries):
            return
        self._behind += entries
        if self._behind > FARTHEST_BEHIND:
            self.leave()

    def leave(self) -> None:
        """Stop reading; whoever waits for the next event gets the end."""
        self._gone = True
        self._reel = _Reel()
        self._broadcast.readers.discard(self)
        self._broadcast.wake()

    def __aiter__(self) -> Reader:
        return self

    async def __anext__(self) -> Event:
        while not self._gone:
            event = self.next_ready()
            if event is not None:
                return event
            await self._broadcast.something_new()
        raise StopAsyncIteration
