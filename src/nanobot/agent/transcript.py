"""How what is said in a turn becomes part of its thread: durable first, then seen by models and readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import anyio

from nanobot.agent.assignment import Assignment
from nanobot.agent.events import Body, MessageAdded, StopReason
from nanobot.agent.model_history import ModelHistory
from nanobot.ids import new_id
from nanobot.llm.messages import Item, Message, Role, ToolCall

TURN: Final = "ai.nanobot.meta/turn"
"""Mark of a message: its turn. Inputs that wait are stored between the messages of the turn before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is recorded together, all of it or nothing.

    `started` are calls about to run, `done` those whose results are among `messages`; `stop` closes the turn.
    """

    messages: Sequence[Message]
    started: Sequence[ToolCall] = ()
    done: Sequence[ToolCall] = ()
    stop: StopReason | None = None


class Journal(Protocol):
    """A conversation as one turn writes it. What `record` was given is durable when it returns.

    Raises `StoreError`.
    """

    @property
    def history(self) -> ModelHistory:
        """What the model is sent; grows with what is recorded. Raises `StoreError` if it cannot be known."""
        ...

    @property
    def call_ids(self) -> set[str]:
        """Ids of all calls of the thread; whoever takes calls adds theirs."""
        ...

    async def record(self, new: Record) -> None: ...


class Unstored:
    """The `Journal` of a turn that leaves nothing behind."""

    def __init__(self, message: Message) -> None:
        self.history = ModelHistory([message])
        self.call_ids: set[str] = set()

    async def record(self, new: Record) -> None:
        for message in new.messages:
            self.history.add(message)


class Transcript:
    """Makes, records and announces the messages of one turn."""

    def __init__(
        self, task: Assignment, journal: Journal, emit: Callable[[Body], None], now: Callable[[], str]
    ) -> None:
        self._mark = {TURN: task.turn_id} if task.thread_id else None
        self._journal = journal
        self._emit = emit
        self._now = now

    def message(
        self, role: Role, items: Sequence[Item], *, id: str = "", meta: Mapping[str, Any] | None = None
    ) -> Message:
        marks = {**(self._mark or {}), **meta} if meta else self._mark
        return Message(id or new_id("msg"), role, tuple(items), self._now(), marks)

    async def record(
        self,
        messages: Sequence[Message],
        *,
        started: Sequence[ToolCall] = (),
        done: Sequence[ToolCall] = (),
        stop: StopReason | None = None,
    ) -> None:
        """Record all of it (see `Record`), then announce the messages. Raises `StoreError`.

        Cancellation waits until it is done, or memory and record would tell different stories.
        """
        new = Record(messages=messages, started=started, done=done, stop=stop)
        with anyio.CancelScope(shield=True):
            await self._journal.record(new)
        for message in messages:
            self._emit(MessageAdded(message))
