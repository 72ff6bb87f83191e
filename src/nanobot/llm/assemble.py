"""From streamed pieces to complete items: the one place where an answer is put together.

A dialect names the item a piece belongs to by a key of its own choice (an index, an item id) and this gives
the item its id, emits the delta and keeps the piece. Ids of deltas are ids of the final items.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Literal

from nanobot.ids import new_id
from nanobot.llm.messages import Item, ProviderData, Reasoning, Text, ToolCall
from nanobot.llm.model import ArgumentsDelta, Emit, FinishReason, ReasoningDelta, TextDelta

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Part:
    id: str
    kind: Literal["text", "reasoning", "call"]
    pieces: list[str] = field(default_factory=list[str])
    call_id: str = ""
    name: str = ""
    data: Any = None


class Assembly:
    """One answer being written. `kind` and `scope` go into the provider data of its items."""

    def __init__(self, emit: Emit, *, kind: str, scope: str) -> None:
        self.id = new_id("msg")
        self.shown = False
        """True once visible text was emitted."""
        self._emit = emit
        self._kind = kind
        self._scope = scope
        self._parts: dict[Hashable, _Part] = {}
        self._call_ids: set[str] = set()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._parts

    def text(self, key: Hashable, piece: str) -> None:
        """More visible text of item `key`."""
        part = self._parts.get(key) or self._open(key, "text")
        if piece:
            part.pieces.append(piece)
            self.shown = True
            self._emit(TextDelta(part.id, piece))

    def reasoning(self, key: Hashable, piece: str) -> None:
        """More thinking of item `key`."""
        part = self._parts.get(key) or self._open(key, "reasoning")
        if piece:
            part.pieces.append(piece)
            self._emit(ReasoningDelta(part.id, piece))

    def call(self, key: Hashable, *, call_id: str = "", name: str = "", piece: str = "") -> None:
        """Open call `key`, or more of its argument text. An id already used in this answer is replaced."""
        part = self._parts.get(key)
        if part is None:
            part = self._open(key, "call")
            part.call_id = call_id if call_id and call_id not in self._call_ids else new_id("call")
            self._call_ids.add(part.call_id)
            part.name = name
        elif not piece:
            part.name = part.name or name
            return
        else:
            part.name = part.name or name
        if piece:
            part.pieces.append(piece)
        self._emit(ArgumentsDelta(part.id, part.call_id, part.name, piece))

    def arguments(self, key: Hashable, whole: str) -> None:
        """The complete argument text of call `key`, as the provider confirms it."""
        part = self._parts[key]
        if not part.pieces and whole:
            self._emit(ArgumentsDelta(part.id, part.call_id, part.name, whole))
        part.pieces = [whole]

    def whole_text(self, key: Hashable, text: str) -> None:
        """Text of an item that came without deltas; nothing if it was streamed already."""
        part = self._parts.get(key)
        if part is None or not part.pieces:
            self.text(key, text)

    def whole_reasoning(self, key: Hashable, text: str) -> None:
        """Like `whole_text`, for thinking."""
        part = self._parts.get(key)
        if part is None or not part.pieces:
            self.reasoning(key, text)

    def keep(self, key: Hashable, data: Any) -> None:
        """Remember what the provider wants back with item `key`; opens a silent item if there is none."""
        part = self._parts.get(key) or self._open(key, "reasoning")
        part.data = data

    def kept(self, key: Hashable) -> Any:
        part = self._parts.get(key)
        return part.data if part else None

    def text_of(self, key: Hashable) -> str:
        """What was assembled for `key` so far."""
        part = self._parts.get(key)
        return "".join(part.pieces) if part else ""

    def calls(self) -> list[str]:
        """The argument texts of all calls, in order."""
        return ["".join(p.pieces) for p in self._parts.values() if p.kind == "call"]

    def items(self, finish: FinishReason) -> tuple[Item, ...]:
        """The complete items, in the order they were opened; empty ones left out.

        Calls of an answer that did not end on its own are dropped: they may be cut off.
        """
        items: list[Item] = []
        for part in self._parts.values():
            written = "".join(part.pieces)
            kept = ProviderData(self._kind, self._scope, part.data) if part.data is not None else None
            match part.kind:
                case "text" if written:
                    items.append(Text(part.id, written))
                case "reasoning" if written or kept:
                    items.append(Reasoning(part.id, (written,) if written else (), kept))
                case "call" if finish in ("stop", "tool_calls"):
                    items.append(ToolCall(part.id, part.call_id, part.name, written, provider_data=kept))
                case "call":
                    log.warning("a tool call of an unfinished answer was dropped", extra={"finish": finish})
                case _:
                    pass
        return tuple(items)

    def _open(self, key: Hashable, kind: Literal["text", "reasoning", "call"]) -> _Part:
        part = _Part(f"{self.id}-{len(self._parts)}", kind)
        self._parts[key] = part
        return part
