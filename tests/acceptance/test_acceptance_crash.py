"""`kill -9` in the middle of a tool call: nothing is lost, nothing runs twice, the model is told."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.peers.programs import serving

from nanobot.testing.model_server import Reply, ScriptedCall, model_server

pytestmark = pytest.mark.anyio

SERVER = """
import json, sys, time
runs, entered = sys.argv[1:]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {}
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "slow", "version": "1"}}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "pay", "inputSchema": {"type": "object"}}]}
    elif message["method"] == "tools/call":
        with open(runs, "a") as file:
            file.write("run\\n")
        open(entered, "w").close()
        time.sleep(600)
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def http(method: str, url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or b"null")


async def test_a_killed_tool_call_is_reported_unknown_and_never_repeated(tmp_path: Path) -> None:
    runs, entered = tmp_path / "runs", tmp_path / "entered"
    os.mkfifo(entered)  # reading it waits until the tool opens it
    (tmp_path / "server.py").write_text(SERVER)
    async with model_server() as model:
        config = tmp_path / "nanobot.yaml"
        pay = {"command": sys.executable, "args": [str(tmp_path / "server.py"), str(runs), str(entered)]} | {
            "sandbox": "off"
        }
        pay["sandbox"] = {"writable": [str(tmp_path)]}
        provider = {"dialect": "OpenAIChatCompletions", "apiKey": "x", "baseURL": model.url}
        config.write_text(json.dumps({
            "agents": {"a": {"model": "p/m", "mcpServers": "pay"}},
            "mcpServers": {"pay": pay},
            "llmProviders": {"p": provider},
        }))  # fmt: skip
        model.queue(Reply(text="I will pay.", calls=(ScriptedCall("pay"),)))
        with serving(str(config), home=tmp_path) as server:
            thread = (await anyio.to_thread.run_sync(http, "POST", server.url + "/api/threads", {}))["id"]
            messages = f"/api/threads/{thread}/messages"
            await anyio.to_thread.run_sync(
                http, "POST", server.url + messages + "?wait=false", {"text": "pay"}
            )
            with anyio.fail_after(30):
                await anyio.to_thread.run_sync(entered.read_bytes, abandon_on_cancel=True)
            server.kill()

        model.queue(Reply(text="I do not know whether it was paid."))
        with serving(str(config), home=tmp_path) as server:
            answer = await anyio.to_thread.run_sync(http, "POST", server.url + messages, {"text": "and?"})
            assert answer["stop"] == "completed"
            history = await anyio.to_thread.run_sync(http, "GET", f"{server.url}/api/threads/{thread}")

    assert runs.read_text() == "run\n"
    sent = model.requests[-1].json["messages"]
    assert sent[-1] == {"role": "user", "content": "and?"}
    [asked] = [message for message in sent if message.get("tool_calls")]
    assert asked["tool_calls"][0]["function"]["name"] == "pay"
    [told] = [message for message in sent if message["role"] == "tool"]
    assert "unknown" in str(told["content"]).lower()
    assert "I will pay." in json.dumps(history)
    assert "I do not know whether it was paid." in json.dumps(history)
