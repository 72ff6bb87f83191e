"""The stand-in that runs without a model: honest, deterministic, and able to call every tool."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.llm.dialects import request, said

from nanobot.llm.demo import DemoModel
from nanobot.llm.messages import Message, Text, ToolOutput
from nanobot.llm.model import Delta, OutputFormat, TextDelta, ToolSet, ToolSpec

pytestmark = pytest.mark.anyio


def tool(name: str, **properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return ToolSpec(name, f"The {name} tool.\nMore.", schema)


TOOLS = ToolSet(
    (
        tool("read", file_path={"type": "string"}),
        tool("add", a={"type": "integer"}, b={"type": "integer"}, note={"type": "string"}),
        tool("fs_list", path={"type": "string"}),
    )
)


async def transcript(*inputs: str, tools: ToolSet = TOOLS) -> list[Any]:
    """What the model answers: a string, or the calls of a round, whose results echo their arguments."""
    messages: list[Message] = []
    answers: list[Any] = []
    for text in inputs:
        messages.append(Message("", "user", (Text("", text),)))
        while True:
            answer = await DemoModel().respond(request(*messages, tools=tools), lambda _: None)
            message = Message(answer.id, "assistant", answer.items)
            messages.append(message)
            if not message.calls:
                answers.append(message.text)
                break
            answers.append([(c.name, json.loads(c.arguments)) for c in message.calls])
            outputs = [
                ToolOutput(
                    "", c.call_id, [{"type": "text", "text": f"got {c.arguments}"}], c.name == "fs_list"
                )
                for c in message.calls
            ]
            messages.append(Message("", "user", tuple(outputs)))
    return answers


async def test_its_first_answer_says_what_it_is_and_what_it_understands() -> None:
    first, second = await transcript("Hello there", "And you?")
    assert "without a language model" in first
    assert "You said: Hello there" in first
    assert "list tools" in first
    assert "without a language model" not in second


async def test_it_lists_its_tools() -> None:
    for words in ("list tools", "tools", "List Tools."):
        (answer,) = await transcript(words)
        assert "- `add`: The add tool." in answer
    (answer,) = await transcript("tools", tools=ToolSet())
    assert "No tools are offered" in answer
    (answer,) = await transcript("tools are nice")
    assert "You said" in answer


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ('call add {"a": 1, "b": {"c": [2]}}', {"a": 1, "b": {"c": [2]}}),
        ("call add a=1 b=-2 note=3", {"a": 1, "b": -2, "note": "3"}),
        ('call add a=1 note="two words" b=3', {"a": 1, "note": "two words", "b": 3}),
        ("call add list=[1,2] flag=true", {"list": [1, 2], "flag": True}),
        ("call add", {}),
        ("CALL ADD a=1", {"a": 1}),
    ],
)
async def test_it_calls_a_tool(command: str, arguments: dict[str, Any]) -> None:
    calls, answer = await transcript(command)
    assert calls == [("add", arguments)]
    assert "`add` gave:\n> got" in answer


async def test_a_published_name_finds_the_tool_it_became() -> None:
    calls, answer = await transcript("call fs.list path=/tmp")
    assert calls == [("fs_list", {"path": "/tmp"})]
    assert "`fs_list` failed:" in answer


async def test_then_is_one_after_the_other_and_and_is_at_once() -> None:
    rounds = await transcript("call add a=1 and call add a=2, then read x.txt\nread y.txt then call fs_list")
    assert rounds[:-1] == [
        [("add", {"a": 1}), ("add", {"a": 2})],
        [("read", {"file_path": "x.txt"}), ("read", {"file_path": "y.txt"})],
        [("fs_list", {})],
    ]
    assert rounds[-1].count("gave:") == 4


async def test_ask_takes_the_next_message_as_the_answer() -> None:
    question, answer, later = await transcript("ask What is your name?", "Ada", "Hello")
    assert question.endswith("What is your name?")
    assert answer == "Your answer is: Ada"
    assert "You said: Hello" in later


async def test_steps_after_ask_go_on_with_the_answer() -> None:
    answers = await transcript("read a.txt then ask Which note? then call add note={answer} a=1", 'x "y"')
    assert answers[0] == [("read", {"file_path": "a.txt"})]
    assert answers[1].endswith("Which note?")
    assert answers[2] == [("add", {"note": 'x "y"', "a": 1})]


async def test_text_that_only_begins_like_a_command_is_no_command() -> None:
    for text in ("read the docs please", "call me maybe, will you", "task list"):
        (answer,) = await transcript(text)
        assert f"You said: {text}" in answer


async def test_an_unknown_tool_and_broken_arguments_are_told() -> None:
    (unknown,) = await transcript("call nothing")
    assert "no tool `nothing`" in unknown
    assert "add" in unknown
    (broken,) = await transcript('call add {"a": ')
    assert "no JSON object" in broken


async def test_a_structured_answer_fits_its_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 3}, "s": {"enum": ["x", "y"]}, "o": {}},
        "required": ["n", "s"],
    }
    output = OutputFormat(name="shape", schema=schema)
    answer = await DemoModel().respond(request(output=output), lambda _: None)
    assert json.loads(said(answer)) == {"n": 3, "s": "x"}


async def test_it_streams_word_by_word() -> None:
    deltas: list[Delta] = []
    answer = await DemoModel().respond(request(), deltas.append)
    pieces = [d.text for d in deltas if isinstance(d, TextDelta)]
    assert len(pieces) > 20
    assert "".join(pieces) == said(answer)
    assert answer.usage.source == "estimated"
