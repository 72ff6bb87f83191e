"""What to do with an answer that cannot be used as it is: ask again, ask to go on, or give up.

`Recovery` looks at responses and decides; it talks to nobody. The turn carries out its `Attempt`s until it
gets an `Answer`. What is asked on the way is for the model alone and never becomes history.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from nanobot.agent import notes
from nanobot.agent.events import StopReason
from nanobot.ids import new_id
from nanobot.llm.messages import Item, Message, Reasoning, Text, ToolCall
from nanobot.llm.model import ModelResponse

CONTINUATIONS: Final = 3
_QUOTED: Final = 64
"""Characters of a cut answer that are quoted to show where to go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One way to ask. `extra` follows the history for this request only.

    `as_planned`: the request of the round as it is, tool choice included. `with_tools` False offers none.
    `more_room`: the model spent its whole output on thinking.
    """

    extra: tuple[Message, ...] = ()
    as_planned: bool = False
    with_tools: bool = True
    more_room: bool = False


AS_PLANNED: Final = Attempt(as_planned=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the model said, all segments of it. `calls` are those of `items`: named, with ids of their own."""

    items: tuple[Item, ...]
    calls: tuple[ToolCall, ...] = ()
    stop: StopReason = "completed"

    @property
    def text(self) -> str:
        return "".join(item.text for item in self.items if isinstance(item, Text))


class Recovery:
    """Judges the responses of one round. `used_ids` are the call ids the thread already has; it grows."""

    def __init__(self, used_ids: set[str]) -> None:
        self.kept: list[Item] = []
        """Segments delivered so far: text that was cut off at the output limit."""
        self._used_ids = used_ids
        self._continued = 0
        self._repeated = self._named = self._roomier = self._final = False

    def judge(self, response: ModelResponse, *, began_call: bool = False) -> Answer | Attempt:
        """`began_call`: a call was being written, even if the response does not have it."""
        said = [item for item in response.items if not isinstance(item, ToolCall) and not _is_blank(item)]
        asked = [item for item in response.items if isinstance(item, ToolCall)]
        has_text = any(not isinstance(item, Reasoning) for item in said)
        match response.finish:
            case "refusal" | "content_filter":
                if not has_text:
                    sentence = notes.REFUSED if response.finish == "refusal" else notes.FILTERED
                    said.append(Text(new_id("item"), sentence))
                return Answer(items=(*self.kept, *said), stop=response.finish)
            case "length":
                return self._cut_off(said, has_text, call_cut=bool(asked) or began_call)
            case "stop" | "tool_calls":
                pass
        named = [call for call in asked if call.name.strip()]
        if named and not self._final:
            return self._with_calls(response.items)
        if has_text or self.kept:
            return Answer(items=(*self.kept, *said))
        if asked and not named and not self._named:
            self._named = True
            return Attempt(extra=(notes.note(notes.NAMELESS),))
        return self._blank(repeat=not asked)

    def _with_calls(self, items: Iterable[Item]) -> Answer:
        usable: list[Item] = []
        calls: list[ToolCall] = []
        for item in items:
            if isinstance(item, ToolCall):
                if not item.name.strip():
                    continue
                item = self._with_own_id(item)
                calls.append(item)
            elif _is_blank(item):
                continue
            usable.append(item)
        return Answer(items=(*self.kept, *usable), calls=tuple(calls))

    def _with_own_id(self, call: ToolCall) -> ToolCall:
        """`call` under an id no other call of the thread has: results are matched by it."""
        if not call.call_id or call.call_id in self._used_ids:
            # What the provider keeps about the call names the old id, so it cannot go back.
            call = replace(call, call_id=new_id("call"), provider_data=None)
        self._used_ids.add(call.call_id)
        return call

    def _cut_off(self, said: Sequence[Item], has_text: bool, *, call_cut: bool) -> Answer | Attempt:
        if not has_text and not call_cut:
            if self.kept:
                return Answer(items=tuple(self.kept), stop="length")
            if not self._roomier:
                self._roomier = True
                return Attempt(more_room=True)
            return self._blank(repeat=False)
        self.kept.extend(said)
        if self._continued == CONTINUATIONS:
            if not self.kept:
                return self._blank(repeat=False)
            return Answer(items=tuple(self.kept), stop="length")
        self._continued += 1
        delivered = "".join(item.text for item in self.kept if isinstance(item, Text))
        wish = notes.CALL_CUT_OFF if call_cut else notes.GO_ON.format(tail=delivered[-_QUOTED:])
        before = (Message(new_id("note"), "assistant", tuple(self.kept)),) if self.kept else ()
        return Attempt(extra=(*before, notes.note(wish)))

    def _blank(self, *, repeat: bool) -> Answer | Attempt:
        if repeat and not self._repeated:
            self._repeated = True
            return AS_PLANNED
        if not self._final:
            self._final = True
            return Attempt(extra=(notes.note(notes.ANSWER_NOW),), with_tools=False)
        return Answer(items=(Text(new_id("item"), notes.NO_ANSWER),), stop="empty_final_response")


def _is_blank(item: Item) -> bool:
    return isinstance(item, Text) and not item.text.strip()
