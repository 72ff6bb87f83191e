"""From the record of a thread to its history, and to an orderly end of what a crash interrupted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
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


async def load(threads: Threads, thread_id: str, now: str) -> list[Message]:
    """The messages of the thread in the order they were meant.

    A turn found unfinished is closed on the record: finished steps stay as they are, a call of unknown
    outcome is called that, nothing is run again. Raises `StoreError`.
    """
    stored = await threads.messages(thread_id)
    turns, ledger = await threads.unfinished(thread_id)
    if len(stored) < _MANY:
        messages = _decode(stored)
    else:
        messages = await anyio.to_thread.run_sync(_decode, stored)
    for turn in turns:
        mine = [message for message in messages if _turn_of(message) == turn.id]
        states = {entry.call_id: entry for entry in ledger if entry.turn_id == turn.id}
        closing = _closing(turn, mine, states, now)
        await threads.append(
            thread_id,
            [StoredMessage(message.id, encode_message(message)) for message in closing],
            calls=[replace(entry, state="done") for entry in states.values()],
            turn=replace(turn, stop=INTERRUPTED),
        )
        messages += closing
    return by_turn(messages)


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
