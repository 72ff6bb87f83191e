"""Making room in a model's window: old results first, then the old part of the conversation as a summary.

Only what the model is sent changes. The stored messages stay as they are; a summary is one more of them,
which says what it stands for, so that a conversation is continued in the same way after a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import anyio.to_thread

from nanobot.agent.context.summary import NoSummary, summarise, summary_message
from nanobot.agent.context.tokens import of_message
from nanobot.agent.context.window import Window
from nanobot.agent.model_history import ModelHistory
from nanobot.agent.truncation import write_full
from nanobot.llm.messages import Item, Message, ToolOutput
from nanobot.llm.model import Model, Usage

log = logging.getLogger(__name__)

FREES: Final = 0.3
"""A summary that saves less of what it stands for is not worth what it loses."""
FRESH_ROUNDS: Final = 3
"""Newest rounds whose results stay whole."""
_LONG_RESULT: Final = 2000
_STUB: Final = 200
_LAST_EXCHANGE: Final = 0.4
"""Part of the room that the exchange before the running turn may take to be kept as it was said."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The messages before `start` are replaced, but for the one at `keep` (None: no exception)."""

    start: int
    keep: int | None

    def covered(self, messages: Sequence[Message]) -> list[Message]:
        return [m for i, m in enumerate(messages[: self.start]) if i != self.keep]


@dataclass(frozen=True, slots=True)
class Condensed:
    message: Message
    usage: Usage


async def stub_results(history: ModelHistory, folder: Path) -> bool:
    """Shorten long results of older rounds to their beginning and the path of the whole; whether any was."""
    rounds = [i for i, message in enumerate(history.messages) if message.role == "assistant"]
    end = rounds[-FRESH_ROUNDS] if len(rounds) >= FRESH_ROUNDS else 0
    changed: dict[int, Message] = {}
    for place, message in enumerate(history.messages[:end]):
        items = [await _stubbed(item, folder) for item in message.items]
        if any(a is not b for a, b in zip(items, message.items, strict=True)):
            changed[place] = replace(message, items=tuple(items), forms={})
    history.swap(changed)
    return bool(changed)


def cut_of(history: ModelHistory, input_id: str, window: Window) -> Cut | None:
    """Where the older part ends; None if there is no older part.

    The tail begins at an input or, within the running turn, at a round: a call keeps its result. The input
    being worked on always stays, and the exchange before it where that is possible.
    """
    messages, sizes = history.messages, history.sizes
    inputs = [i for i, message in enumerate(messages) if _is_input(message)]
    current = next((i for i in inputs if messages[i].id == input_id), inputs[-1] if inputs else 0)
    starts = [i for i in inputs if i <= current]
    starts += [i for i in range(current + 1, len(messages)) if messages[i].role == "assistant"]
    if not starts:
        return None
    start = next((i for i in starts if sum(sizes[i:]) <= window.tail), starts[-1])
    before = [i for i in inputs if i < current]
    if start >= current and before and sum(sizes[before[-1] :]) <= _LAST_EXCHANGE * window.trigger:
        start = before[-1]
    if start <= current:
        return Cut(start, None) if start > 0 else None
    return Cut(start, current) if start - 1 > 0 else None


async def condense(
    history: ModelHistory,
    cut: Cut,
    model: Model,
    name: str,
    window: Window,
    *,
    created: str,
    mark: dict[str, str],
) -> Condensed:
    """A summary of what `cut` replaces. Raises `NoSummary`, also when it would save too little."""
    covered = cut.covered(history.messages)
    summary = await summarise(covered, model, name, window=window.size, limit=window.reserve)
    message = summary_message(
        summary.text,
        covers=history.messages[cut.start - 1].id,
        keeps="" if cut.keep is None else history.messages[cut.keep].id,
        created=created,
        mark=mark,
    )
    before, after = sum(map(of_message, covered)), of_message(message)
    if after > (1 - FREES) * before:
        raise NoSummary(f"it would save less than {FREES:.0%} ({before} tokens became {after})")
    return Condensed(message, summary.usage)


async def _stubbed(item: Item, folder: Path) -> Item:
    if not isinstance(item, ToolOutput):
        return item
    texts = [block for block in item.content if block.get("type") == "text"]
    length = sum(len(block.get("text", "")) for block in texts)
    if length <= _LONG_RESULT:
        return item
    beginning = "".join(block["text"] for block in texts)[:_STUB]
    try:
        path = await anyio.to_thread.run_sync(write_full, item.content, folder, f"result-{item.call_id}")
    except OSError as e:
        log.warning("an old result stays, it could not be stored", extra={"reason": e.strerror})
        return item
    text = f"{beginning}\n\n[Truncated: full output available at {path}]"
    stub: list[Mapping[str, Any]] = [{"type": "text", "text": text}]
    return replace(item, content=stub, structured=None)


def _is_input(message: Message) -> bool:
    return message.role == "user" and not any(isinstance(item, ToolOutput) for item in message.items)
