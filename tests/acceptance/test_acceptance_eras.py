"""Clients and servers of both eras through nanobot: every pair that can work does."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.shared.subscriptions import ResourceUpdated, ToolsListChanged
from tests.peers.programs import clean_env, serving, started

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("client", ["legacy", "2026-07-28"]),
    pytest.mark.parametrize("server", ["legacy", "modern"]),
    pytest.mark.parametrize("carrier", ["stdio", "http"]),
]
PEER = Path(__file__).parents[1] / "peers" / "asking_server.py"


@asynccontextmanager
async def between(
    home: Path, client: str, server: str, carrier: str, **callbacks: Any
) -> AsyncGenerator[Client]:
    """A client in front of nanobot, with the asking server behind it."""
    with ExitStack() as stack:
        definition: dict[str, Any] = {"protocol": server}
        if carrier == "stdio":
            definition |= {"command": sys.executable, "args": [str(PEER), "stdio"], "sandbox": "off"}
            definition["sandbox"] = {"writable": [str(home)]}  # where it marks what happened
        else:
            peer = stack.enter_context(
                started(
                    [sys.executable, str(PEER), "http"],
                    env=clean_env(home),
                    cwd=home,
                    announces=r"serving (\S+)",
                )
            )
            definition |= {"url": peer.url}
        config = home / "nanobot.yaml"
        config.write_text(json.dumps({"mcpServers": {"peer": definition}, "publish": {"mcpServers": "peer"}}))
        args = [str(config), "--default-model", "demo", "--exclude-built-in-agents"]
        host = stack.enter_context(serving(*args, home=home))
        async with Client(host.url + "/mcp", mode=client, **callbacks) as connected:
            yield connected


def said(result: types.CallToolResult) -> str:
    assert not result.is_error, result
    block = result.content[0]
    assert isinstance(block, types.TextContent)
    return block.text


async def test_an_elicitation_reaches_the_client_and_its_answer_the_server(
    tmp_path: Path, client: str, server: str, carrier: str
) -> None:
    async def answer(context: Any, params: Any) -> types.ElicitResult:
        assert params.message == "Who are you?"
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with between(tmp_path, client, server, carrier, elicitation_callback=answer) as connected:
        assert said(await connected.call_tool("greet", {})) == "Hello Ada"


async def test_a_declined_elicitation_is_told(tmp_path: Path, client: str, server: str, carrier: str) -> None:
    async def answer(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    async with between(tmp_path, client, server, carrier, elicitation_callback=answer) as connected:
        assert said(await connected.call_tool("greet", {})) == "no name: decline"


async def test_sampling_reaches_the_client(tmp_path: Path, client: str, server: str, carrier: str) -> None:
    async def answer(context: Any, params: Any) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text="hm")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    async with between(tmp_path, client, server, carrier, sampling_callback=answer) as connected:
        assert said(await connected.call_tool("think", {})) == "It says hm"


async def test_roots_reach_the_server(tmp_path: Path, client: str, server: str, carrier: str) -> None:
    async def answer(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root.model_validate({"uri": "file:///somewhere"})])

    async with between(tmp_path, client, server, carrier, list_roots_callback=answer) as connected:
        assert said(await connected.call_tool("where", {})) == "file:///somewhere"


async def test_progress_arrives_in_order(tmp_path: Path, client: str, server: str, carrier: str) -> None:
    seen: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with between(tmp_path, client, server, carrier) as connected:
        result = await connected.call_tool("steps", {"count": 3}, progress_callback=note)
    assert said(result) == "done"
    assert seen == [1, 2, 3]


async def test_a_cancelled_call_is_cancelled_at_the_server(
    tmp_path: Path, client: str, server: str, carrier: str
) -> None:
    mark = tmp_path / "cancelled"
    async with between(tmp_path, client, server, carrier) as connected:
        async with anyio.create_task_group() as group:

            async def call() -> None:
                await connected.call_tool("wait_for_cancellation", {"path": str(mark)})

            group.start_soon(call)
            with anyio.fail_after(30):
                while not Path(f"{mark}.started").exists():  # noqa: ASYNC110  another process writes it
                    await anyio.sleep(0.02)
            group.cancel_scope.cancel()
        with anyio.fail_after(30):
            while not mark.exists():  # noqa: ASYNC110  another process writes it
                await anyio.sleep(0.02)


async def test_without_the_capability_the_server_is_told_so(
    tmp_path: Path, client: str, server: str, carrier: str
) -> None:
    async with between(tmp_path, client, server, carrier) as connected:
        try:
            told = str(await connected.call_tool("greet", {}))
        except MCPError as refusal:
            told = str(refusal)
    assert "no name: cancel" in told or "elicitation" in told.lower()


class News:
    """What a client hears that belongs to none of its requests, as `method uri`."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._came = anyio.Event()

    async def __call__(self, message: Any) -> None:
        method = getattr(message, "method", "")
        if method.startswith("notifications/"):
            self.note(method, getattr(message.params, "uri", ""))

    def note(self, *words: object) -> None:
        self.heard.append(" ".join(str(word) for word in words if word))
        self._came.set()

    async def until(self, wanted: str) -> None:
        with anyio.fail_after(30):
            while wanted not in self.heard:
                await self._came.wait()
                self._came = anyio.Event()


@asynccontextmanager
async def following(connected: Client, client: str, news: News, uri: str) -> AsyncGenerator[None]:
    """Hear of changes of `uri` and of the list of tools, in the way of the client's era."""
    if client == "legacy":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the SDK regrets that the method was removed
            await connected.subscribe_resource(uri)  # pyright: ignore[reportDeprecated]
            yield
            await connected.unsubscribe_resource(uri)  # pyright: ignore[reportDeprecated]
        return
    async with connected.listen(tools_list_changed=True, resource_subscriptions=[uri]) as events:

        async def hear() -> None:
            async for event in events:
                match event:
                    case ResourceUpdated(uri=updated):
                        news.note("notifications/resources/updated", updated)
                    case ToolsListChanged():
                        news.note("notifications/tools/list_changed")
                    case other:
                        news.note(type(other).__name__)

        async with anyio.create_task_group() as group:
            group.start_soon(hear)
            yield
            group.cancel_scope.cancel()


async def test_updates_reach_who_follows_the_resource_and_no_others(
    tmp_path: Path, client: str, server: str, carrier: str
) -> None:
    news = News()
    async with between(tmp_path, client, server, carrier, message_handler=news) as connected:
        await connected.list_tools()
        async with following(connected, client, news, "news://paper"):
            followed = said(await connected.call_tool("print_news", {}))
            await news.until("notifications/resources/updated news://paper")
            await connected.call_tool("grow", {})  # its news takes the same way, after all the rest
            await news.until("notifications/tools/list_changed")
        assert followed == ("news://paper" if server == "legacy" else "")
        assert not any("gazette" in one for one in news.heard)
        with anyio.fail_after(30):
            while said(await connected.call_tool("print_news", {})):  # noqa: ASYNC110  until it is given up
                await anyio.sleep(0.02)


async def test_a_changed_list_is_told(tmp_path: Path, client: str, server: str, carrier: str) -> None:
    news = News()
    async with between(tmp_path, client, server, carrier, message_handler=news) as connected:
        before = [tool.name for tool in (await connected.list_tools()).tools]
        async with following(connected, client, news, "news://paper"):
            await connected.call_tool("grow", {})
            await news.until("notifications/tools/list_changed")
        after = [tool.name for tool in (await connected.list_tools(cache_mode="bypass")).tools]
    assert set(after) - set(before) == {"grown"}


async def test_the_log_reaches_the_client_at_the_level_that_it_wants(
    tmp_path: Path, client: str, server: str, carrier: str
) -> None:
    news = News()

    async def hear(params: types.LoggingMessageNotificationParams) -> None:
        news.note(params.level, params.logger, json.dumps(params.data))

    async with between(
        tmp_path, client, server, carrier, logging_callback=hear, log_level="warning"
    ) as connected:
        if client == "legacy":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the SDK regrets that the method was removed
                await connected.set_logging_level("warning")  # pyright: ignore[reportDeprecated]
        wanted = said(await connected.call_tool("chatter", {}))
        await news.until('warning talker {"server": "peer", "data": {"about": "the call"}}')
        if client == server == "legacy":  # news without a request has no other way
            await news.until('warning talker {"server": "peer", "data": {"about": "nothing"}}')
    assert wanted == ("warning" if server == "legacy" else "as I like")
    assert not any(one.startswith("info") for one in news.heard)
