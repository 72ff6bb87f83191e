"""A conversation that grows is written bit by bit, and reads as if it were written at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.llm.anthropic import AnthropicMessages
from nanobot.llm.chat_completions import ChatCompletions
from nanobot.llm.dialect import Dialect
from nanobot.llm.endpoint import Adaptations, Endpoint, Quirks
from nanobot.llm.messages import Content, Item, Message, Role, Text, ToolCall, ToolOutput
from nanobot.llm.model import Beginning, ModelRequest
from nanobot.llm.responses import Responses

DIALECTS: Sequence[Dialect] = (ChatCompletions(), Responses(), AnthropicMessages())
IMAGE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}


@st.composite
def turns(draw: st.DrawFn) -> list[list[Message]]:
    """Whole turns: an input, then rounds of calls with their results, then an answer or none."""
    reuses_ids = draw(st.booleans())
    number = 0
    conversation: list[list[Message]] = []

    def message(role: Role, *items: Item) -> Message:
        nonlocal number
        number += 1
        return Message(f"m{number}", role, items)

    for _ in range(draw(st.integers(1, 5))):
        turn = [message("user", Text("t", draw(st.text(min_size=1, max_size=5))))]
        for _ in range(draw(st.integers(0, 2))):
            calls = [
                draw(st.sampled_from("abc")) if reuses_ids else f"call{number}-{n}"
                for n in range(draw(st.integers(1, 2)))
            ]
            turn.append(message("assistant", Text("t", "hm"), *(ToolCall(c, c, "f", "{}") for c in calls)))
            outputs: list[Item] = [ToolOutput(c, c, [{"type": "text", "text": "1"}, IMAGE]) for c in calls]
            if draw(st.booleans()):
                outputs.append(Content("i", IMAGE))
            turn.append(message("user", *outputs))
        if draw(st.booleans()):
            turn.append(message("assistant", Text("t", "done")))
        conversation.append(turn)
    return conversation


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.path)
@given(conversation=turns())
def test_growing_and_whole_are_written_alike(dialect: Dialect, conversation: list[list[Message]]) -> None:
    endpoint = Endpoint(
        provider="p", base_url="http://127.0.0.1:1/v1", api_key="", quirks=Quirks(prompt_cache=True)
    )
    beginnings: dict[str, Beginning] = {}
    messages: list[Message] = []
    for turn in conversation:
        for message in turn:
            messages.append(message)
            grown = ModelRequest(model="m", messages=messages, beginnings=beginnings)
            whole = ModelRequest(model="m", messages=[*messages])
            assert dialect.encode(grown, endpoint, Adaptations()) == dialect.encode(
                whole, endpoint, Adaptations()
            )


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.path)
@given(before=turns(), after=turns())
def test_a_rewritten_conversation_is_written_anew(
    dialect: Dialect, before: list[list[Message]], after: list[list[Message]]
) -> None:
    endpoint = Endpoint(provider="p", base_url="http://127.0.0.1:1/v1", api_key="", quirks=Quirks())
    beginnings: dict[str, Beginning] = {}
    first = [m for turn in before for m in turn]
    second = [m for turn in after for m in turn]
    dialect.encode(ModelRequest(model="m", messages=first, beginnings=beginnings), endpoint, Adaptations())
    grown = ModelRequest(model="m", messages=second, beginnings=beginnings)
    whole = ModelRequest(model="m", messages=second)
    assert dialect.encode(grown, endpoint, Adaptations()) == dialect.encode(whole, endpoint, Adaptations())
