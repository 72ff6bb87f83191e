"""The history as a model may see it: what providers refuse is mended, what is fine stays the same object.

It grows message by message, so nothing is ever done for the whole thread again, and a request begins with the
very objects the one before began with. The stored history is never touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nanobot.agent import notes
from nanobot.llm.messages import Item, Message, Text, ToolCall, ToolOutput
from nanobot.llm.model import Beginning
from nanobot.llm.tool_names import wire_name

CANCELLED = "ai.nanobot.meta/cancelled"
"""Mark of an answer that was stopped; its text is what had arrived."""


class ModelHistory:
    """Messages a provider accepts: the first is a user's, and each call is followed by exactly one result.

    `beginnings` belongs to the models: what they keep of `messages`, see `ModelRequest`.
    """

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages: list[Message] = []
        self.beginnings: dict[str, Beginning] = {}
        self._open: dict[str, str] = {}  # call id → id of the message that asked, while there is no result
        for message in messages:
            self.add(message)

    def add(self, message: Message) -> None:
        """Take the next message of the thread."""
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
            self.messages.append(Message(f"{asked_by}-{call_id}-lost", "user", (lost,)))
        self._open.clear()

    def _append(self, message: Message) -> None:
        shown = _shown(message)
        if not self.messages and shown.role == "assistant":
            opening = Text(f"{shown.id}-opening-text", notes.CONTINUED)
            self.messages.append(Message(f"{shown.id}-opening", "user", (opening,)))
        self.messages.append(shown)
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
