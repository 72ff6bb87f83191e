"""Tools that are functions of this process, used like those of any server."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from nanobot.builtin.server import BuiltinResource, BuiltinServer, BuiltinTool, ResourceLink, ToolFailed
from nanobot.errors import NotFound
from nanobot.wire.call import Call
from nanobot.wire.rpc import INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND, Payload, RpcError

pytestmark = pytest.mark.anyio

SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["path"],
}


def server_answering(answer: Any) -> BuiltinServer:
    async def run(arguments: dict[str, Any], call: Call) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return arguments if answer is Ellipsis else answer

    return BuiltinServer("nanobot.test", [BuiltinTool(name="t", description="T", schema=SCHEMA, run=run)])


async def ask(server: BuiltinServer, method: str = "tools/call", **params: Any) -> Any:
    return json.loads((await server.request(method, Payload(json.dumps(params).encode()), Call())).raw)


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ("hi", {"content": [{"type": "text", "text": "hi"}]}),
        ({"a": 1}, {"content": [{"type": "text", "text": '{"a":1}'}], "structuredContent": {"a": 1}}),
        ([1, "é"], {"content": [{"type": "text", "text": '[1,"é"]'}]}),
        (None, {"content": [{"type": "text", "text": "null"}]}),
        (
            {"content": "plain object"},
            {
                "content": [{"type": "text", "text": '{"content":"plain object"}'}],
                "structuredContent": {"content": "plain object"},
            },
        ),
        (
            ResourceLink(uri="file:///a", name="a", mime_type="a/b"),
            {"content": [{"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "a/b"}]},
        ),
        (
            {"content": [{"type": "image", "data": ""}], "isError": True},
            {"content": [{"type": "image", "data": ""}], "isError": True},
        ),
        (Payload(b'{"content":[],"x":1}'), {"content": [], "x": 1}),
        (
            ToolFailed("no such file"),
            {"content": [{"type": "text", "text": "no such file"}], "isError": True},
        ),
        (NotFound("gone"), {"content": [{"type": "text", "text": "gone"}], "isError": True}),
        (
            FileNotFoundError(2, "No such file or directory", "/x"),
            {"content": [{"type": "text", "text": "No such file or directory: /x"}], "isError": True},
        ),
    ],
)
async def test_what_a_tool_gives_becomes_a_result(answer: Any, result: dict[str, Any]) -> None:
    assert await ask(server_answering(answer), name="t", arguments={"path": "p"}) == result


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (None, 't: "path" is a required property'),
        ({"path": 1}, 't: argument path: 1 is not of type "string"'),
        ({"path": "p", "limit": "4"}, 't: argument limit: "4" is not of type "integer"'),
    ],
)
async def test_arguments_that_do_not_fit_are_told_to_the_model(arguments: Any, complaint: str) -> None:
    result = await ask(server_answering("unused"), name="t", arguments=arguments)
    assert result == {"content": [{"type": "text", "text": complaint}], "isError": True}


async def test_a_complaint_about_a_huge_argument_is_short() -> None:
    result = await ask(server_answering(""), name="t", arguments={"path": ["x" * 10_000]})
    assert len(result["content"][0]["text"]) < 400


async def test_arguments_the_tool_does_not_know_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    result = await ask(server_answering(...), name="t", arguments={"path": "p", "mimeType": "x"})
    assert result["structuredContent"] == {"path": "p"}
    assert [record.message for record in caplog.records] == ["arguments ignored"]


async def test_a_whole_number_is_an_integer_however_it_is_written() -> None:
    params = Payload(b'{"name":"t","arguments":{"path":"p","limit":3.0}}')
    result = await server_answering(...).request("tools/call", params, Call())
    assert result.object()["content"][0]["text"] == '{"path":"p","limit":3}'


async def test_an_unknown_tool_and_bad_params_are_protocol_errors() -> None:
    server = server_answering("")
    wrong: tuple[dict[str, Any], ...] = ({"name": "nope"}, {"name": "t", "arguments": [1]}, {})
    for params in wrong:
        with pytest.raises(RpcError) as refused:
            await ask(server, **params)
        assert refused.value.rpc_code == INVALID_PARAMS
    with pytest.raises(RpcError, match="unknown tool nope"):
        await ask(server, name="nope")
    with pytest.raises(RpcError) as refused:
        await ask(server, "prompts/get", name="x")
    assert refused.value.rpc_code == METHOD_NOT_FOUND


async def test_a_bug_in_a_tool_is_not_dressed_up_as_a_result() -> None:
    with pytest.raises(ZeroDivisionError):
        await ask(server_answering(ZeroDivisionError()), name="t", arguments={"path": "p"})


async def test_tools_are_listed_sorted_with_closed_schemas() -> None:
    async def run(arguments: dict[str, Any], call: Call) -> str:
        return ""

    tools = [BuiltinTool(name=name, description=name, schema={}, run=run) for name in ("b", "a")]
    entries = await BuiltinServer("s", tools).listing("tools")
    closed: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
    assert [json.loads(entry.definition.raw) for entry in entries] == [
        {"name": "a", "description": "a", "inputSchema": closed},
        {"name": "b", "description": "b", "inputSchema": closed},
    ]


async def test_resources_are_listed_and_read() -> None:
    async def text(call: Call) -> str:
        return "hello"

    async def data(call: Call) -> bytes:
        return b"\x00"

    greeting = BuiltinResource(uri="a:t", name="t", read=text, mime_type="text/x")
    server = BuiltinServer("s", [], resources=[greeting])
    news: list[str] = []
    leave = server.watch(lambda kind, account: news.append(kind))
    server.replace_resources([greeting, BuiltinResource(uri="a:d", name="d", read=data)])
    leave()
    server.replace_tools([])
    assert news == ["resources"]
    assert [entry.key for entry in await server.listing("resources")] == ["a:d", "a:t"]
    assert await ask(server, "resources/read", uri="a:t") == {
        "contents": [{"uri": "a:t", "mimeType": "text/x", "text": "hello"}]
    }
    assert await ask(server, "resources/read", uri="a:d") == {"contents": [{"uri": "a:d", "blob": "AA=="}]}
    with pytest.raises(RpcError) as refused:
        await ask(server, "resources/read", uri="a:x")
    assert refused.value.rpc_code == RESOURCE_NOT_FOUND
