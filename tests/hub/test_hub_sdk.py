"""The published server as the official SDK's client sees it, in both eras, over real HTTP."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import uvicorn
from mcp import Client, MCPError
from tests.hub.world import config, refs, running
from tests.upstream.world import oracle, pooled

from nanobot.aio import task_group
from nanobot.builtin.server import BuiltinResource, BuiltinServer, BuiltinTool
from nanobot.config.model import McpServer, Prompt, PromptField, Publish, ServerSettings, SessionSettings
from nanobot.hub.publish import Publisher
from nanobot.wire.call import Call
from nanobot.wire.server_http import McpEndpoint
from nanobot.wire.source import Source

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])]


@asynccontextmanager
async def serving(publish: Publish, *sources: Source, **fields: Any) -> AsyncGenerator[str]:
    """The URL of an endpoint in front of the sources."""
    settings = config(publish=publish, **fields)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with running(settings, *sources) as hub, task_group() as group:
            publisher = Publisher(settings, hub, version="1.2.3")
            endpoint = McpEndpoint(publisher, settings=ServerSettings(), session_settings=SessionSettings())
            await group.start(endpoint.run)
            server = uvicorn.Server(uvicorn.Config(endpoint, lifespan="off", log_level="error"))
            group.start_soon(server.serve, [listener])
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            endpoint.close()
            server.should_exit = True
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()


async def test_tools_prompts_and_resources_of_a_builtin(mode: Any) -> None:
    async def add(arguments: dict[str, Any], call: Call) -> dict[str, Any]:
        return {"sum": arguments["a"] + arguments["b"]}

    async def read(call: Call) -> str:
        return "hello"

    number = {"type": "integer"}
    schema = {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}
    builtin = BuiltinServer(
        "calc",
        [BuiltinTool(name="add", description="Adds", schema=schema, run=add)],
        resources=[BuiltinResource(uri="calc:///hello", name="hello", read=read, mime_type="text/plain")],
    )
    greet = Prompt(name="greet", template="Hi ${name}", input=(PromptField(name="name"),))
    publish = Publish(mcp_servers=refs("calc"), prompts=refs("greet"), instructions="Be kind.")
    async with (
        serving(publish, builtin, prompts={"greet": greet}) as url,
        Client(url, mode=mode) as client,
    ):
        tools = (await client.list_tools()).tools
        assert [(tool.name, tool.description) for tool in tools] == [("add", "Adds")]
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result.structured_content == {"sum": 3}
        failed = await client.call_tool("add", {"a": "x", "b": 2})
        assert failed.is_error
        with pytest.raises(MCPError, match="unknown tool 'nope'"):
            await client.call_tool("nope", {})
        prompt: Any = await client.get_prompt("greet", {"name": "Ada"})
        assert prompt.messages[0].content.text == "Hi Ada"
        assert [one.uri for one in (await client.list_resources()).resources] == ["calc:///hello"]
        contents: Any = await client.read_resource("calc:///hello")
        assert contents.contents[0].text == "hello"


async def test_an_upstream_process_is_published_under_a_prefix(mode: Any) -> None:
    settings = {"oracle": McpServer(name="oracle", tool_prefix="o_")}
    async with (
        pooled(oracle()) as pools,
        serving(Publish(mcp_servers=refs("oracle")), pools["oracle"], mcp_servers=settings) as url,
        Client(url, mode=mode) as client,
    ):
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "o_echo" in names
        result: Any = await client.call_tool("o_echo", {"text": "ä"})
        assert result.content[0].text == "ä"
        seen: list[float] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            seen.append(progress)

        await client.call_tool("o_steps", {"count": 3}, progress_callback=note)
        assert seen == sorted(set(seen))
        assert len(seen) == 3
