"""An agent that takes long, asked by a client that comes back for the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.server.world import Served, served

from nanobot.testing.model_reply import Reply

pytestmark = pytest.mark.anyio
TASKS = "io.modelcontextprotocol/tasks"
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}},
}


async def ask(host: Served, method: str, name: str, params: dict[str, Any]) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    headers = {
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        "Mcp-Name": name,
        "Accept": "application/json",
    }
    return (await host.ask("POST", "/mcp", body, headers)).json["result"]


async def over(host: Served, id: str) -> Any:
    """The task when it is done."""
    with anyio.fail_after(30):
        while True:
            task = await ask(host, "tasks/get", id, {"taskId": id})
            if task["status"] != "working":
                return task


async def test_the_answer_of_an_agent_is_fetched_and_a_cancelled_task_cancels_its_turn(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as host:
        host.model.queue(Reply(text="At last.", wait_ms=2500), Reply(text="Never.", wait_ms=600_000))
        say: dict[str, Any] = {"name": "chat-with-main", "arguments": {"prompt": "Hello"}}
        task = await ask(host, "tools/call", "chat-with-main", say)
        assert (task["resultType"], task["status"]) == ("task", "working")
        done = await over(host, task["taskId"])
        assert done["result"]["content"][0]["text"] == "At last."
        assert done["result"]["_meta"]["ai.nanobot/session"]

        second = (await ask(host, "tools/call", "chat-with-main", say))["taskId"]
        assert host.app.engine.load() == (1, 0)
        await ask(host, "tasks/cancel", second, {"taskId": second})
        assert (await over(host, second))["status"] == "cancelled"
        with anyio.fail_after(30):
            while host.app.engine.load() != (0, 0):
                await anyio.lowlevel.checkpoint()
