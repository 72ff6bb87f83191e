"""The parts with rules of their own: arguments, names, schemas, history, permissions, truncation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.agent.arguments import BadArguments, read_arguments
from nanobot.agent.broadcast import Broadcast, Reader
from nanobot.agent.delegation import refusal
from nanobot.agent.events import Delta, MessageAdded
from nanobot.agent.input import chat_input
from nanobot.agent.model_history import ModelHistory
from nanobot.agent.nearest import nearest_name
from nanobot.agent.plan import Planned, groups
from nanobot.agent.policy import permits_tool
from nanobot.agent.schemas import accepted_schema
from nanobot.agent.tools import Tool, ToolResult
from nanobot.agent.truncation import LIMIT, fit, head_and_tail
from nanobot.config.model import Agent
from nanobot.errors import UsageError
from nanobot.llm.content import clean
from nanobot.llm.messages import Message, Text, ToolCall, ToolOutput
from nanobot.llm.model import TextDelta
from nanobot.llm.tool_names import wire_names

TAKES_A = {"type": "object", "properties": {"a": {}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        ("  ", {}),
        ("null", {}),
        ("{}", {}),
        ('{"a": 1}', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{"arguments": {"a": 1}}', {"a": 1}),
        ('{"arguments": "{\\"a\\": 1}"}', {"a": 1}),
        ('{"arguments": [1]}', {"arguments": [1]}),
        ('{"arguments": {"a": 1}, "b": 2}', {"arguments": {"a": 1}, "b": 2}),
    ],
)
def test_arguments_that_are_taken(text: str, arguments: dict[str, Any]) -> None:
    assert read_arguments(text, tool="t", schema=TAKES_A) == arguments


def test_a_parameter_called_arguments_is_not_unwrapped() -> None:
    schema = {"type": "object", "properties": {"arguments": {}}}
    wrapped = '{"arguments": {"a": 1}}'
    assert read_arguments(wrapped, tool="t", schema=schema) == {"arguments": {"a": 1}}


@pytest.mark.parametrize(
    "text", ["[1]", "1", "true", '"text"', '{"a": 1', "{'a': 1}", '{"a": 1} x', "[" * 5000]
)
def test_arguments_that_are_refused_say_what_is_required(text: str) -> None:
    with pytest.raises(BadArguments, match=r"t: arguments must be one JSON object.*Required parameters: a\."):
        read_arguments(text, tool="t", schema=TAKES_A)


def test_over_long_arguments_are_refused_unread() -> None:
    with pytest.raises(BadArguments, match="at most 1048576"):
        read_arguments("x" * (2**20 + 1), tool="t", schema={})


def test_wire_names_are_accepted_by_providers_and_no_two_alike() -> None:
    published = ["fs.read", "fs_read", "1st", "-x", "ü", "", "x" * 80, "x" * 81, "ok"]
    wire = wire_names(published)
    assert wire["ok"] == "ok"
    assert wire["fs_read"] == "fs_read"
    assert wire["fs.read"].startswith("fs_read_")
    assert wire["1st"] == "t_1st"
    assert all(len(name) <= 64 for name in wire.values())
    assert len(set(wire.values())) == len(published)


def test_the_nearest_name_is_found_and_a_far_one_is_not() -> None:
    assert nearest_name("Read_File", ["write", "readFile"]) == "readFile"
    assert nearest_name("raed", ["read", "write"]) == "read"
    assert nearest_name("delete", ["read", "write"]) is None


@pytest.mark.parametrize(
    ("schema", "accepted"),
    [
        (None, {"type": "object", "properties": {}}),
        (True, {"type": "object", "properties": {}}),
        ({"type": "string"}, {"type": "object", "properties": {}}),
        ({"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
        (
            {"$schema": "x", "$id": "y", "type": "object", "$defs": {"d": {}}},
            {"type": "object", "properties": {}, "$defs": {"d": {}}},
        ),
        (
            {
                "oneOf": [
                    {"properties": {"a": {}, "b": {}}, "required": ["a", "b"]},
                    {"properties": {"a": {}, "c": {}}, "required": ["a"]},
                ]
            },
            {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "required": ["a"]},
        ),
        (
            {"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"required": ["b"]}]},
            {"type": "object", "properties": {"a": {}}, "required": ["a", "b"]},
        ),
    ],
)
def test_schemas_become_what_providers_accept(schema: Any, accepted: Any) -> None:
    assert accepted_schema(schema) == accepted


def call(id: str) -> ToolCall:
    return ToolCall(f"i{id}", id, "t", "{}")


def output(id: str) -> ToolOutput:
    return ToolOutput(f"o{id}", id, [{"type": "text", "text": "r"}])


def said(role: Any, *items: Any) -> Message:
    return Message(f"m{id(items)}", role, tuple(items))


def results(history: ModelHistory) -> list[tuple[str, bool]]:
    found = [item for m in history.messages for item in m.items if isinstance(item, ToolOutput)]
    return [(item.call_id, "lost" in str(item.content)) for item in found]


def test_a_history_that_needs_nothing_is_the_same_objects() -> None:
    messages = [
        said("user", Text("1", "hi")),
        said("assistant", Text("2", "ok"), call("a")),
        said("user", output("a")),
        said("assistant", Text("3", "done")),
    ]
    assert all(a is b for a, b in zip(ModelHistory(messages).messages, messages, strict=True))


def test_lost_results_are_filled_in_before_the_next_message() -> None:
    history = ModelHistory(
        [
            said("user", Text("1", "hi")),
            said("assistant", call("a"), call("b")),
            said("user", output("b")),
            said("user", Text("2", "well?")),
        ]
    )
    assert results(history) == [("b", False), ("a", True)]
    assert history.messages[-1].text == "well?"


def test_results_nobody_asked_for_and_second_results_are_left_out() -> None:
    history = ModelHistory(
        [
            said("user", Text("1", "hi")),
            said("assistant", call("a")),
            said("user", output("a"), output("x")),
            said("user", output("a")),
        ]
    )
    assert results(history) == [("a", False)]
    assert len(history.messages) == 3


def test_a_history_begins_with_a_user_and_empty_messages_say_so() -> None:
    history = ModelHistory([said("assistant", Text("1", "hello")), said("user", Text("2", " \n"))])
    assert [(m.role, m.text) for m in history.messages] == [
        ("user", "(conversation continued)"),
        ("assistant", "hello"),
        ("user", "(empty)"),
    ]


@given(st.lists(st.tuples(st.sampled_from(["ask", "answer", "both", "say", "reply"]), st.integers(0, 3))))
def test_whatever_was_stored_each_call_has_one_result_right_after_it(story: list[tuple[str, int]]) -> None:
    history = ModelHistory()
    for number, (kind, n) in enumerate(story):
        items = {
            "ask": [ToolCall(f"i{number}", f"{n}-{number}", "t", "{}")],
            "answer": [output(f"{n}-{number - 1}")],
            "both": [output(f"{n}-{number - 1}"), Text("x", "and")],
            "say": [Text("x", "text")],
            "reply": [Text("x", "text")],
        }[kind]
        role = "assistant" if kind in ("ask", "reply") else "user"
        history.add(Message(f"m{number}", role, tuple(items)))
    history.close()
    waiting: set[str] = set()
    for message in history.messages:
        given_here = {i.call_id for i in message.items if isinstance(i, ToolOutput)}
        assert given_here <= waiting
        waiting -= given_here
        assert not waiting or given_here
        waiting |= {i.call_id for i in message.items if isinstance(i, ToolCall)}
    assert not waiting
    assert not history.messages or history.messages[0].role == "user"


def planned(name: str, *, read_only: bool = False, agent: bool = False) -> Planned:
    tool = Tool(name=name, target=name, target_type="agent" if agent else "tool", read_only=read_only)
    return Planned(ToolCall(name, name, name, "{}"), tool, {})


def test_groups_are_runs_of_calls_that_change_nothing() -> None:
    steps = [planned(n, read_only=n != "write") for n in ("grep", "read", "write", "grep", "read")]
    cut = groups(steps, parallel=True)
    assert [[s.call.name for s in group] for group in cut] == [["grep", "read"], ["write"], ["grep", "read"]]
    assert len(groups(steps, parallel=False)) == 5
    assert [len(g) for g in groups([planned("r", read_only=True)] * 20, parallel=True)] == [8, 8, 4]


def test_an_agent_is_asked_once_at_a_time_and_few_at_once() -> None:
    same = groups([planned("a", agent=True), planned("a", agent=True)], parallel=True)
    assert [len(g) for g in same] == [1, 1]
    many = groups([planned(str(n), agent=True) for n in range(6)], parallel=True)
    assert [len(g) for g in many] == [4, 2]


@pytest.mark.parametrize(
    ("permissions", "granted"),
    [
        (None, {"bash", "read", "write", "edit", "glob", "grep", "getSkill"}),
        ({"*": "deny", "read": "allow"}, {"read"}),
        ({"read": "allow", "*": "deny"}, {"read"}),
        ({"bash": "deny"}, {"read", "write", "edit", "glob", "grep", "getSkill"}),
        ({"*": "deny", "write": "allow"}, {"write", "edit"}),
        ({"*": "deny", "write": "allow", "edit": "deny"}, {"write"}),
        ({"*": "deny", "edit": "allow"}, {"edit"}),
        ({"*": "deny", "skills": "allow"}, {"getSkill"}),
        ({"*": "deny"}, set()),
    ],
)
def test_permissions_grant_the_tools_they_name(permissions: Any, granted: set[str]) -> None:
    agent = Agent(id="a", permissions=permissions)
    tools = ("bash", "read", "write", "edit", "glob", "grep", "getSkill", "config")
    assert {tool for tool in tools if permits_tool(agent, tool)} == granted


@pytest.mark.anyio
@pytest.mark.parametrize(("size", "is_cut"), [(LIMIT - 1, False), (LIMIT, False), (LIMIT + 1, True)])
async def test_results_are_cut_beyond_the_limit_only(tmp_path: Path, size: int, is_cut: bool) -> None:
    result = ToolResult.text("x" * size)
    fitted = await fit(result, tmp_path / "out", tool="../t", call_id="c/1", trusted=False)
    assert (fitted is not result) == is_cut
    assert [path.name for path in tmp_path.glob("out/*")] == (["_t-c_1.txt"] if is_cut else [])


@pytest.mark.anyio
async def test_only_our_own_tools_may_ask_to_be_left_whole(tmp_path: Path) -> None:
    block = {"type": "text", "text": "x" * 2 * LIMIT, "_meta": {"ai.nanobot.meta/skip-truncation": True}}
    result = ToolResult(content=[block])
    assert await fit(result, tmp_path, tool="t", call_id="1", trusted=True) is result
    assert await fit(result, tmp_path, tool="t", call_id="1", trusted=False) is not result
    huge = ToolResult(content=[block | {"text": "x" * (11 * 2**20)}])
    assert await fit(huge, tmp_path, tool="t", call_id="1", trusted=True) is not huge


@pytest.mark.anyio
async def test_a_screenshot_stays_visible_and_the_same_id_gets_another_file(tmp_path: Path) -> None:
    image = {"type": "image", "data": "A" * 400_000, "mimeType": "image/png"}
    whole = ToolResult(content=[image])
    assert await fit(whole, tmp_path, tool="t", call_id="1", trusted=False) is whole
    mixed = ToolResult(content=[image, {"type": "text", "text": "y" * 2 * LIMIT}], is_error=True)
    for _ in range(2):
        fitted = await fit(mixed, tmp_path, tool="t", call_id="1", trusted=False)
        assert image in fitted.content
        assert fitted.is_error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t-1-1.json", "t-1.json"]


@pytest.mark.anyio
async def test_a_copy_that_cannot_be_written_costs_only_the_copy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    fitted = await fit(
        ToolResult.text("z" * 2 * LIMIT), tmp_path / "file", tool="t", call_id="1", trusted=False
    )
    assert "could not be stored" in fitted.content[0]["text"]


@given(st.text(), st.integers(40, 400))
def test_head_and_tail_are_within_the_limit_and_whole_characters(text: str, limit: int) -> None:
    short = head_and_tail(text, limit)
    if len(text.encode()) <= limit:
        assert short == text
    else:
        head, tail = short.split("\n\n[… ")[0], short.split(" bytes left out …]\n\n")[-1]
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len((head + tail).encode()) <= limit


@given(st.text(st.characters(codec=None)))
def test_cleaned_text_can_be_stored(text: str) -> None:
    assert "\x00" not in clean(text)
    clean(text).encode()


def test_what_a_chat_call_may_say() -> None:
    assert chat_input({"prompt": "hi"}).text == "hi"
    assert chat_input({"question": 1}).text == '{"question":1}'
    picture = chat_input({"prompt": "see", "attachments": ["data:image/png;base64,AAAA"]})
    assert picture.content == ({"type": "image", "data": "AAAA", "mimeType": "image/png"},)
    for bad in (
        {"prompt": 1},
        {"prompt": "", "attachments": [{"url": "ftp://x"}]},
        {"attachments": ["data:,x"]},
    ):
        with pytest.raises(UsageError):
            chat_input({"prompt": "x"} | bad)


def test_a_reader_that_is_far_behind_is_let_go() -> None:
    broadcast = Broadcast("t")
    reader = Reader(broadcast)
    message = said("user", Text("1", "x"))
    for _ in range(3):
        for _ in range(4000):
            broadcast.emit(MessageAdded(message))
        broadcast.cut()
    assert broadcast.readers == set()
    assert reader.next_ready() is None


def test_deltas_are_joined_by_item_and_numbered_by_the_last_of_them() -> None:
    broadcast = Broadcast("t")
    reader = Reader(broadcast)
    for item, text in [("a", "1"), ("a", "2"), ("b", "3"), ("b", "4")]:
        broadcast.emit(Delta("m", TextDelta(item, text)))
    first, second = reader.next_ready(), reader.next_ready()
    assert first is not None
    assert second is not None
    assert (first.body, first.sequence) == (Delta("m", TextDelta("a", "12")), 2)
    assert (second.body, second.sequence) == (Delta("m", TextDelta("b", "34")), 4)
    assert reader.next_ready() is None
    broadcast.emit(Delta("m", TextDelta("b", "5")))
    third = reader.next_ready()
    assert third is not None
    assert (third.body, third.sequence) == (Delta("m", TextDelta("b", "5")), 5)


def test_r35_delegation_has_a_bottom() -> None:
    assert refusal([str(n) for n in range(8)], "next") is None
    assert "at most 8" in (refusal([str(n) for n in range(9)], "next") or "")
    assert refusal(["a", "b", "a"], "b") is None
    assert "already working" in (refusal(["a", "b", "a", "b", "a"], "a") or "")
