"""An answer while it is being written, so that what was shown is kept when the turn is stopped."""

from __future__ import annotations

from collections.abc import Sequence

from nanobot.llm.messages import Item, Reasoning, Text
from nanobot.llm.model import ArgumentsDelta, ReasoningDelta, TextDelta


class Draft:
    """Collects the deltas of one response. `before` are the segments of the same answer delivered earlier."""

    def __init__(self, message_id: str, before: Sequence[Item] = ()) -> None:
        self.message_id = message_id
        self.deltas: list[TextDelta | ReasoningDelta | ArgumentsDelta] = []
        self._before = before

    @property
    def began_call(self) -> bool:
        return any(isinstance(delta, ArgumentsDelta) for delta in self.deltas)

    def items(self) -> tuple[Item, ...]:
        """What was shown so far. Calls are left out: half a call is no call."""
        pieces: dict[tuple[type, str], list[str]] = {}
        for delta in self.deltas:
            if not isinstance(delta, ArgumentsDelta):
                pieces.setdefault((type(delta), delta.item_id), []).append(delta.text)
        shown: list[Item] = [*self._before]
        for (kind, item_id), texts in pieces.items():
            text = "".join(texts)
            shown.append(Text(item_id, text) if kind is TextDelta else Reasoning(item_id, (text,)))
        return tuple(shown)
