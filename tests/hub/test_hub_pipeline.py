"""Allow, override, prefix: which tools of a server exist, and what stays of their definitions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nanobot.config.model import McpServer, ToolOverride
from nanobot.hub.pipeline import shape_tools
from nanobot.wire.rpc import Payload
from nanobot.wire.source import Entry

REPAIRED = {"type": "object", "properties": {}}


def entry(name: str, **members: Any) -> Entry:
    return Entry(name, Payload(json.dumps({"name": name, "inputSchema": REPAIRED, **members}).encode()))


def shaped(entries: list[Entry], **server: Any) -> dict[str, dict[str, Any]]:
    tools = shape_tools(McpServer(name="s", **server), entries)
    return {name: json.loads(tool.definition.raw) for name, tool in tools.items()}


def test_without_a_pipeline_definitions_stay_byte_for_byte() -> None:
    odd = Entry(
        "t", Payload(b'{ "x":1.50, "name":"t","inputSchema":{"type":"object","properties":{},"$defs":{}}}')
    )
    assert shape_tools(McpServer(name="s"), [odd])["t"].definition is odd.definition


def test_allow_comes_first_then_override_then_prefix() -> None:
    schema = {"type": "object", "properties": {"q": {}}}
    found = shaped(
        [entry("a", x=1), entry("b"), entry("c")],
        allow_tools=("a", "b"),
        tool_overrides={
            "a": ToolOverride(
                name="z", description="new", input_schema={"type": "object", "properties": {"q": {}}}
            ),
            "c": ToolOverride(name="never"),
        },
        tool_prefix="p_",
    )
    assert found == {"p_z": {"name": "p_z", "inputSchema": schema, "x": 1, "description": "new"}}


def test_an_empty_allow_list_allows_nothing() -> None:
    assert shaped([entry("a")], allow_tools=()) == {}


def test_of_two_tools_with_one_name_the_first_stays(caplog: pytest.LogCaptureFixture) -> None:
    overrides = {"a": ToolOverride(name="x"), "b": ToolOverride(name="x", description="second")}
    assert list(shaped([entry("a"), entry("b")], tool_overrides=overrides)) == ["x"]
    assert [record.message for record in caplog.records] == ["two tools of a server have one name"]


@pytest.mark.parametrize(
    ("schema", "repaired"),
    [
        (None, REPAIRED),
        ("{}", REPAIRED),
        ([], REPAIRED),
        ({}, REPAIRED),
        ({"type": "object"}, REPAIRED),
        ({"type": "object", "$defs": {"a": {}}}, {"type": "object", "$defs": {"a": {}}, "properties": {}}),
        ({"oneOf": [{"required": ["a"]}]}, {"oneOf": [{"required": ["a"]}]}),
        (
            {"type": "object", "properties": {"a": 1}, "if": {}},
            {"type": "object", "properties": {"a": 1}, "if": {}},
        ),
    ],
)
def test_only_a_schema_nobody_could_read_is_repaired(schema: Any, repaired: Any) -> None:
    assert shaped([entry("t", inputSchema=schema)])["t"]["inputSchema"] == repaired


def test_a_definition_that_is_no_object_is_left_out() -> None:
    assert shape_tools(McpServer(name="s"), [Entry("t", Payload(b"[]"))]) == {}
