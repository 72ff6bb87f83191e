"""The official client in both eras, over HTTP and over stdio, against our server."""

from __future__ import annotations

import sys
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp_types.methods import validate_server_result
from tests.wire.test_wire_server_duplex import SERVER
from tests.wire.world import TinyService, modern, serving

pytestmark = pytest.mark.anyio

MODES = pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])


@MODES
async def test_the_official_client_lists_calls_and_hears_news(mode: Any) -> None:
    progress: list[float] = []
    logged: list[Any] = []

    async def on_progress(value: float, total: float | None, message: str | None) -> None:
        progress.append(value)

    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        logged.append(params.data)

    service = TinyService()
    async with serving(service) as server:
        async with Client(server.url, mode=mode, logging_callback=on_log) as client:
            if mode != "2026-07-28":  # a client that is told the version asks nobody
                assert client.server_info is not None
                assert client.server_info.name == "tiny"
            assert [tool.name for tool in (await client.list_tools()).tools] == ["ask", "echo", "report"]
            echoed = await client.call_tool("echo", {"word": "hi"})
            assert echoed.content[0].text == '{"word": "hi"}'  # pyright: ignore
            await client.call_tool("report", {}, progress_callback=on_progress)
            assert progress == [1, 2, 5]
            assert logged == (["debug", "error"] if mode == "legacy" else [])
            with pytest.raises(Exception, match="unknown tool 'nothing'"):
                await client.call_tool("nothing", {})
    assert {caller.era for caller in service.callers} == {"legacy" if mode == "legacy" else "modern"}


async def test_the_official_client_answers_a_question() -> None:
    async def on_question(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ann"})

    async with serving(TinyService()) as server:
        async with Client(server.url, mode="legacy", elicitation_callback=on_question) as client:
            answer = await client.call_tool("ask", {})
            assert "Ann" in answer.content[0].text  # pyright: ignore


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_official_client_cancels(mode: Any) -> None:
    service = TinyService()
    async with serving(service) as server, Client(server.url, mode=mode) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "wait", {})
            await service.entered.wait()
            group.cancel_scope.cancel()
        with anyio.fail_after(10):
            await service.was_cancelled.wait()
        assert (await client.list_tools()).tools


async def test_the_official_client_listens() -> None:
    service = TinyService()
    async with serving(service) as server, Client(server.url) as client:
        async with client.listen(tools_list_changed=True) as events:
            service.change("notifications/tools/list_changed")
            with anyio.fail_after(10):
                assert type(await anext(aiter(events))).__name__ == "ToolsListChanged"


@MODES
async def test_the_official_client_over_stdio(mode: Any) -> None:
    parameters = StdioServerParameters(command=sys.executable, args=["-c", SERVER])
    async with Client(parameters, mode=mode) as client:
        assert len((await client.list_tools()).tools) == 3
        assert (await client.call_tool("echo", {"n": 1})).content[0].text == '{"n": 1}'  # pyright: ignore


@pytest.mark.parametrize(
    ("method", "params"),
    [("server/discover", {}), ("tools/list", {}), ("tools/call", {"name": "echo"})],
)
async def test_modern_results_are_valid_for_the_official_models(method: str, params: dict[str, Any]) -> None:
    headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": method, "mcp_name": params.get("name", "")}
    async with serving(TinyService()) as client:
        answer = await client.post(modern(method, params), **headers)
        validate_server_result(method, "2026-07-28", answer.json()["result"])
