"""Servers of the modern era over HTTP: finding out that they are, and what each request says to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from starlette.responses import JSONResponse, Response
from tests.upstream.world import running, use
from tests.wire.http_peer import Answer, Asked, Peer, answer, serving

from nanobot.config.model import McpServer
from nanobot.wire import client
from nanobot.wire.call import Call
from nanobot.wire.rpc import Payload, RpcError

pytestmark = pytest.mark.anyio

ABOUT: dict[str, Any] = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}


def modern(on_request: Callable[[Asked], Answer] = lambda asked: None, tools: Any = ()) -> Peer:
    """A server that knows nothing of `initialize`."""

    async def respond(asked: Asked) -> Answer:
        if (own := on_request(asked)) is not None:
            return own
        match asked.method:
            case "server/discover":
                return answer(asked, ABOUT)
            case "tools/list":
                return answer(asked, {"tools": list(tools)})
            case "initialize":
                return refused(asked, -32020, "Missing MCP-Protocol-Version header")
            case _:
                return None

    return Peer(respond)


def refused(asked: Asked, code: int, message: str, **data: Any) -> Response:
    error = {"code": code, "message": message, "data": data}
    return JSONResponse({"jsonrpc": "2.0", "id": asked.message["id"], "error": error}, 400)


async def test_a_server_that_names_our_version_in_its_refusal_is_asked_once_more() -> None:
    def fickle(asked: Asked) -> Answer:
        if asked.method == "server/discover" and peer.times("server/discover") == 1:
            return refused(asked, -32022, "unsupported", supported=["2026-07-28"], requested="?")
        return None

    peer = modern(fickle)
    async with serving(peer) as url, running(McpServer(name="far", url=url)) as upstream:
        assert (await upstream.ready()).era == "modern"
    assert peer.times("server/discover") == 2
    assert peer.times("initialize") == 0


@pytest.mark.parametrize("refuses", [True, False])
async def test_a_modern_server_that_is_slow_at_first_is_not_given_up(
    monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    """Its silence makes us take it for a legacy one; when it refuses that, it gets all the time it needs."""
    monkeypatch.setattr(client, "PROBE_S", 0.05)

    async def slow(asked: Asked) -> Answer:
        if asked.method == "server/discover" and peer.times("server/discover") == 1:
            await anyio.sleep_forever()
        if asked.method == "initialize" and not refuses:
            return answer(asked, {"protocolVersion": "2026-07-28", "capabilities": {}})
        return await usual(asked)

    peer = modern()
    usual, peer.on_request = peer.on_request, slow
    async with serving(peer) as url, running(McpServer(name="far", url=url)) as upstream:
        assert (await upstream.ready()).era == "modern"
    assert [asked.method for asked in peer.asked[:3]] == ["server/discover", "initialize", "server/discover"]


async def test_a_tool_whose_arguments_cannot_be_put_into_headers_is_left_out() -> None:
    def tool(name: str, mark: str) -> dict[str, Any]:
        properties = {"region": {"type": "string", "x-mcp-header": mark}}
        return {"name": name, "inputSchema": {"type": "object", "properties": properties}}

    tools = [tool("good", "Region"), tool("bad", "My Region"), {"name": "odd", "inputSchema": None}]
    async with (
        serving(modern(tools=tools)) as url,
        running(McpServer(name="far", url=url)) as upstream,
    ):
        assert [entry.key for entry in await upstream.listing("tools")] == ["good", "odd"]


async def test_a_call_without_its_header_is_made_again_once_the_tools_were_read() -> None:
    """Another connection of ours may have read the list: this one does not know the tool's marks."""
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}

    def strict(asked: Asked) -> Answer:
        if asked.method == "tools/call" and asked.headers.get("mcp-param-region") != "eu":
            return refused(asked, -32020, "header mismatch")
        return None

    peer = modern(strict, [{"name": "locate", "inputSchema": schema}])
    async with serving(peer) as url, running(McpServer(name="far", url=url)) as upstream:
        for _ in range(2):
            assert await use(upstream, "locate", region="eu") == {"of": "tools/call"}
        with pytest.raises(RpcError, match="header mismatch"):
            await use(upstream, "locate", region="us")
    assert peer.times("tools/call") == 5
    assert peer.times("tools/list") == 2


@pytest.mark.parametrize("level", ["info", None])
async def test_a_server_is_told_which_log_messages_the_caller_wants(level: str | None) -> None:
    peer = modern()
    async with serving(peer) as url, running(McpServer(name="far", url=url)) as upstream:
        await upstream.request("tools/call", Payload.of({"name": "work"}), Call(log_level=level))
    sent = next(asked.message for asked in peer.asked if asked.method == "tools/call")
    assert sent["params"]["_meta"].get("io.modelcontextprotocol/logLevel") == level
