"""From the record of a thread to its history, and to an orderly end of what a crash interrupted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import anyio.to_thread

from nanobot.agent import notes
from nanobot.agent.transcript import TURN
from nanobot.ids import new_id
from nanobot.llm.messages import (
    Item,
    Message,
    Role,
    Text,
    ToolCall,
    ToolOutput,
    decode_message,
    encode_message,
)
from nanobot.store.rows import LedgerEntry, StoredMessage, TurnRow
from nanobot.store.threads import Threads

INTERRUPTED: Final = "interrupted"
"""`stop` of a turn that ended with the program."""
_MANY: Final = 200
"""So many messages take a few milliseconds to decode; the event loop is not kept waiting for them."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A thread as it is on record. `last`: the id of the message stored last, "" if there is none.

    `is_settled` is False while another process has an unfinished turn in it.
    """

    messages: list[Message]
    last: str
    is_settled: bool


async def load(threads: Threads, thread_id: str, now: str, *, ahead: Collection[str] = ()) -> Loaded:
    """The messages of the thread in the order they were meant, but those of the turns `ahead` of us.

    A turn that nobody carries out any more is closed on the record: finished steps stay as they are, a call
    of unknown outcome is called that, nothing is run again. Raises `StoreError`.
    """
    loaded = None
    while loaded is None:
        loaded = await _load(threads, thread_id, now, ahead)
    return loaded


async def _load(threads: Threads, thread_id: str, now: str, ahead: Collection[str]) -> Loaded | None:
    """As `load`; None if another process has closed the same turn meanwhile."""
    record = await threads.record(thread_id)
    if len(record.messages) < _MANY:
        messages = _decode(record.messages)
    else:
        messages = await anyio.to_thread.run_sync(_decode, record.messages)
    last, is_settled = record.last, True
    for turn in record.turns:
        if turn.id in ahead:
            continue
        if turn.owner != threads.processes.own and threads.processes.is_alive(turn.owner):
            is_settled = False
            continue
        mine = [message for message in messages if _turn_of(message) == turn.id]
        states = {entry.call_id: entry for entry in record.calls if entry.turn_id == turn.id}
        closing = _closing(turn, mine, states, now)
        closed = await threads.append_after(
            last,
            thread_id,
            [StoredMessage(message.id, encode_message(message)) for message in closing],
            calls=[replace(entry, state="done") for entry in states.values()],
            turn=replace(turn, stop=INTERRUPTED),
        )
        if not closed:
            return None
        last = closing[-1].id
        messages += closing
    kept = [message for message in messages if _turn_of(message) not in ahead]
    return Loaded(by_turn(kept), last, is_settled)


def by_turn(messages: Sequence[Message]) -> list[Message]:
    """Messages of one turn together, turns in the order they began to be recorded.

    An input that waited is on the record among the messages of the turn before it.
    """
    places: dict[str, int] = {}
    for place, message in enumerate(messages):
        places.setdefault(_turn_of(message) or message.id, place)
    return sorted(messages, key=lambda message: places[_turn_of(message) or message.id])


def _decode(stored: Iterable[StoredMessage]) -> list[Message]:
    return [decode_message(message.raw) for message in stored]


def _closing(
    turn: TurnRow, messages: Sequence[Message], states: dict[str, LedgerEntry], now: str
) -> list[Message]:
    """Results for the calls that have none, and the sentence that the turn was interrupted."""
    have = {item.call_id for message in messages for item in message.items if isinstance(item, ToolOutput)}
    calls = [item for message in messages for item in message.items if isinstance(item, ToolCall)]
    closing: list[Message] = []
    for call in calls:
        if call.call_id in have:
            continue
        entry = states.get(call.call_id)
        reason = notes.CALL_UNKNOWN if entry and entry.state == "started" else notes.CALL_INTERRUPTED
        content = [{"type": "text", "text": reason}]
        output = ToolOutput(new_id("item"), call.call_id, content, is_error=True)
        closing.append(_message("user", output, turn, now))
    closing.append(_message("assistant", Text(new_id("item"), notes.TURN_INTERRUPTED), turn, now))
    return closing


def _message(role: Role, item: Item, turn: TurnRow, now: str) -> Message:
    return Message(new_id("msg"), role, (item,), now, {TURN: turn.id})


def _turn_of(message: Message) -> str:
    return str(message.meta.get(TURN, "")) if message.meta else ""
