"""The history as a model may see it: what providers refuse is mended, what is fine stays the same object.

It grows message by message, so nothing is ever done for the whole thread again, and a request begins with the
very objects the one before began with. The stored history is never touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from nanobot.agent import notes
from nanobot.agent.context.summary import COVERS, KEEPS, is_summary
from nanobot.agent.context.tokens import of_message
from nanobot.llm.messages import Item, Message, Text, ToolCall, ToolOutput
from nanobot.llm.model import Beginning
from nanobot.llm.tool_names import wire_name

CANCELLED = "ai.nanobot.meta/cancelled"
"""Mark of an answer that was stopped; its text is what had arrived."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a provider said the first `count` messages weigh, with all that requests of `key` add to them."""

    key: object
    count: int
    tokens: int


class ModelHistory:
    """Messages a provider accepts: the first is a user's, and each call is followed by exactly one result.

    `sizes` are the estimated tokens of each. `beginnings` belongs to the models: what they keep of
    `messages`, see `ModelRequest`.
    """

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages: list[Message] = []
        self.sizes: list[int] = []
        self.size = 0
        self.measured: Measured | None = None
        self.beginnings: dict[str, Beginning] = {}
        self._open: dict[str, str] = {}  # call id → id of the message that asked, while there is no result
        for message in messages:
            self.add(message)

    def add(self, message: Message) -> None:
        """Take the next message of the thread; a summary takes the place of what it covers."""
        if is_summary(message):
            self._condense(message)
            return
        if message.role == "user" and self._open:
            mended = self._only_expected_results(message)
        elif any(isinstance(item, ToolOutput) for item in message.items):
            mended = _changed(message, [i for i in message.items if not isinstance(i, ToolOutput)])
        else:
            mended = message
        if mended.items or not message.items:
            if not any(isinstance(item, ToolOutput) for item in mended.items):
                self.close()
            self._append(mended)

    def close(self) -> None:
        """Give each call that still has no result the sentence that it was lost."""
        for call_id, asked_by in self._open.items():
            content = [{"type": "text", "text": notes.RESULT_LOST}]
            lost = ToolOutput(f"{call_id}-lost", call_id, content, is_error=True)
            self._put(Message(f"{asked_by}-{call_id}-lost", "user", (lost,)))
        self._open.clear()

    def swap(self, changed: Mapping[int, Message]) -> None:
        """Put other messages in the places of some."""
        for place, message in changed.items():
            self.messages[place] = message
            self.sizes[place] = of_message(message)
        if changed:
            self._rewritten()

    def drop(self, start: int, keep: int | None) -> None:
        """Take out the messages before `start`, but for the one at `keep`."""
        kept = [] if keep is None else [self.messages[keep]]
        self._become([*kept, *self.messages[start:]])

    def _condense(self, summary: Message) -> None:
        meta = summary.meta or {}
        ids = [message.id for message in self.messages]
        if meta[COVERS] not in ids:  # written over another history than this; the whole one is right as well
            return
        start = ids.index(str(meta[COVERS])) + 1
        kept = [m for m in self.messages[:start] if m.id == meta.get(KEEPS)]
        self._become([summary, *kept, *self.messages[start:]])

    def _become(self, messages: list[Message]) -> None:
        self.messages[:] = messages
        self.sizes[:] = map(of_message, messages)
        self._rewritten()

    def _rewritten(self) -> None:
        self.size = sum(self.sizes)
        self.measured = None
        self.beginnings.clear()

    def _put(self, message: Message) -> None:
        size = of_message(message)
        self.messages.append(message)
        self.sizes.append(size)
        self.size += size

    def _append(self, message: Message) -> None:
        shown = _shown(message)
        if not self.messages and shown.role == "assistant":
            opening = Text(f"{shown.id}-opening-text", notes.CONTINUED)
            self._put(Message(f"{shown.id}-opening", "user", (opening,)))
        self._put(shown)
        for item in shown.items:
            if isinstance(item, ToolCall):
                self._open[item.call_id] = shown.id

    def _only_expected_results(self, message: Message) -> Message:
        kept: list[Item] = []
        for item in message.items:
            if isinstance(item, ToolOutput) and self._open.pop(item.call_id, None) is None:
                continue
            kept.append(item)
        return _changed(message, kept)


def _shown(message: Message) -> Message:
    items: list[Item] = []
    for item in message.items:
        match item:
            case Text(text=text) if not text.strip():
                continue
            case ToolCall(name=name):
                if not name:
                    continue
                wire = wire_name(name)
                items.append(item if wire == name else replace(item, name=wire))
            case _:
                items.append(item)
    if message.role == "assistant" and message.meta and message.meta.get(CANCELLED):
        items.append(Text(f"{message.id}-cancelled", notes.ANSWER_CANCELLED))
    if not items:
        items.append(Text(f"{message.id}-empty", notes.EMPTY))
    return _changed(message, items)


def _changed(message: Message, items: list[Item]) -> Message:
    """`message` with `items`; the same object if they are the same, so that its encoded forms stay valid."""
    if len(items) == len(message.items) and all(a is b for a, b in zip(items, message.items, strict=True)):
        return message
    return replace(message, items=tuple(items), forms={})
