"""How a served nanobot ends: what runs is finished, what only watches is let go, nobody waits for ever."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from tests.peers.programs import Running, clean_env, free_port, nanobot, serving
from tests.server.world import Events
from tests.upstream.world import until

from nanobot.http import Http, open_http
from nanobot.testing.model_server import ModelServer, Reply, model_server

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
STREAM = {**JSON, "Accept": "text/event-stream"}


def write_config(home: Path, model: ModelServer) -> Path:
    path = home / "nanobot.yaml"
    provider = {"dialect": "OpenAIChatCompletions", "baseURL": model.url, "apiKey": "x"}
    config = {"llmProviders": {"script": provider}, "agents": {"main": {"model": "script/m"}}}
    path.write_text(json.dumps(config))
    return path


async def new_thread(http: Http, url: str) -> str:
    made = await http.request("POST", f"{url}/api/threads", headers=JSON, body=b"{}")
    return json.loads(made.body)["id"]


async def ended(server: Running, within_s: float) -> int:
    with anyio.fail_after(within_s):
        return await anyio.to_thread.run_sync(server.process.wait, abandon_on_cancel=True)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_watching_streams_at_once_and_the_program_well(
    sent: signal.Signals, tmp_path: Path
) -> None:
    async with model_server() as model, open_http() as http:
        with serving(str(write_config(tmp_path, model)), home=tmp_path) as server:
            thread = await new_thread(http, server.url)
            async with http.stream("GET", f"{server.url}/api/events/{thread}") as watching:
                stream = Events(watching.status, watching.chunks())
                await stream.until("history-end")
                server.process.send_signal(sent)
                assert await stream.rest() == []
            assert await ended(server, 8) == 0
            assert not any("Traceback" in line for line in server.lines)


async def test_a_turn_under_way_is_finished_before_the_end(tmp_path: Path) -> None:
    async with model_server() as model, open_http() as http:
        with serving(str(write_config(tmp_path, model)), home=tmp_path) as server:
            thread = await new_thread(http, server.url)
            model.queue(Reply(text="a few words that take a moment", pause_ms=60))
            url = f"{server.url}/api/threads/{thread}/messages"
            async with http.stream("POST", url, headers=STREAM, body=b'{"text":"go"}') as turn:
                stream = Events(turn.status, turn.chunks())
                await stream.until("chat-in-progress")
                server.process.terminate()
                done = (await stream.until("chat-done"))[-1]
            assert json.loads(done.data)["stop"] == "completed"
            assert await ended(server, 8) == 0


ASKING = Path(__file__).parents[1] / "peers" / "asking_server.py"
HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "m", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
MODERN = {
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "wait_for_cancellation",
}


def write_config_with_tools(home: Path, model: ModelServer) -> Path:
    path = write_config(home, model)
    asking = {"command": sys.executable, "args": [str(ASKING), "stdio"], "sandbox": "off"}
    publish = {"entrypoint": "main", "mcpServers": ["asking"]}
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "mcpServers": {"asking": asking}, "publish": publish})
    )
    return path


def rpc(method: str, params: Mapping[str, Any], id: int | None = 1) -> bytes:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(message if id is None else {**message, "id": id}).encode()


def endless(mark: Path, **meta: Any) -> bytes:
    """A call of a tool that never ends; it makes the file `<mark>.started`."""
    params = {"name": "wait_for_cancellation", "arguments": {"path": str(mark)}}
    return rpc("tools/call", {**params, "_meta": meta} if meta else params)


def has_started(mark: Path) -> bool:
    return mark.with_name(f"{mark.name}.started").exists()


async def test_whatever_is_open_at_the_end_is_answered_and_nothing_in_the_log_looks_like_a_fault(
    tmp_path: Path,
) -> None:
    said: dict[str, bytes] = {}

    async def read(http: Http, name: str, verb: str, url: str, headers: Mapping[str, str], body: bytes = b""):
        async with http.stream(verb, url, headers={**STREAM, **headers}, body=body or None) as answer:
            said[name] = b""
            async for chunk in answer.chunks():
                said[name] += chunk

    async with model_server() as model, open_http() as http:
        path = str(write_config_with_tools(tmp_path, model))
        with serving(path, "--legacy-sse", home=tmp_path) as server:
            mcp, turns = f"{server.url}/mcp", f"{server.url}/api/threads"
            both = {"Accept": "application/json, text/event-stream"}
            opened = await http.request(
                "POST", mcp, headers={**JSON, **both}, body=rpc("initialize", HANDSHAKE)
            )
            session = {**both, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
            model.queue(*[Reply(text="endless words", pause_ms=60_000)] * 2)
            threads = [await new_thread(http, server.url) for _ in range(2)]
            say, as_json = b'{"text":"go"}', {"Accept": "application/json"}
            async with anyio.create_task_group() as group:
                group.start_soon(read, http, "GET", "GET", mcp, session)
                group.start_soon(read, http, "legacy", "POST", mcp, session, endless(tmp_path / "legacy"))
                modern = endless(tmp_path / "modern", **ENVELOPE)
                group.start_soon(read, http, "modern", "POST", mcp, {**both, **MODERN}, modern)
                group.start_soon(read, http, "turn", "POST", f"{turns}/{threads[0]}/messages", STREAM, say)
                group.start_soon(read, http, "json", "POST", f"{turns}/{threads[1]}/messages", as_json, say)
                group.start_soon(read, http, "sse", "GET", f"{server.url}/sse", STREAM)
                await until(lambda: b"sessionId" in said.get("sse", b""))
                messages = server.url + said["sse"].decode().split("data: ")[1].split()[0]
                for body in (
                    rpc("initialize", HANDSHAKE),
                    rpc("notifications/initialized", {}, None),
                    endless(tmp_path / "older"),
                ):
                    assert (await http.request("POST", messages, headers=JSON, body=body)).status == 202
                await until(lambda: all(has_started(tmp_path / n) for n in ("legacy", "modern", "older")))
                await until(lambda: len(model.requests) == 2 and {"GET", "legacy", "modern"} <= {*said})
                server.process.terminate()
            assert await ended(server, 8) == 0
    log = "".join(server.lines)
    assert "Traceback" not in log, log
    assert "ERROR" not in log, log
    stopping = b'"error":{"code":-32603,"message":"the server is stopping"'
    assert all(stopping in said[name] for name in ("legacy", "modern", "sse")), said
    comment = b": the server is stopping\n\n"
    assert all(comment in said[name] for name in ("GET", "legacy", "modern", "turn", "sse")), said
    assert json.loads(said["json"])["error"]["code"] == "stopping"


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, None])
async def test_over_stdio_an_open_call_is_answered_when_the_program_stops(
    sent: signal.Signals | None, tmp_path: Path
) -> None:
    async with model_server() as model:
        path = str(write_config_with_tools(tmp_path, model))
        process = await anyio.open_process(
            [sys.executable, "-m", "nanobot", "run", path, "-a", "stdio"],
            env=clean_env(tmp_path), cwd=tmp_path, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        for line in (rpc("initialize", HANDSHAKE, 7), endless(tmp_path / "mark")):
            await process.stdin.send(line + b"\n")
        await until(lambda: has_started(tmp_path / "mark"))
        if sent is None:
            await process.stdin.aclose()
        else:
            process.send_signal(sent)
        said = b""
        with anyio.fail_after(20):
            async for chunk in process.stdout:
                said += chunk
            assert await process.wait() == 0
        answers = {answer["id"]: answer for answer in map(json.loads, said.splitlines())}
        assert answers[1]["error"]["message"] == "the server is stopping"
        assert answers[1]["error"]["data"]["retryable"] is False


async def test_a_second_signal_does_not_wait_for_a_turn(tmp_path: Path) -> None:
    async with model_server() as model, open_http() as http:
        with serving(str(write_config(tmp_path, model)), home=tmp_path) as server:
            thread = await new_thread(http, server.url)
            model.queue(Reply(text="endless", pause_ms=60_000))
            url = f"{server.url}/api/threads/{thread}/messages"
            async with http.stream("POST", url, headers=STREAM, body=b'{"text":"go"}') as turn:
                await Events(turn.status, turn.chunks()).until("chat-in-progress")
                server.process.send_signal(signal.SIGTERM)
                server.process.send_signal(signal.SIGINT)
                assert await ended(server, 8) == 1
            assert not any("Traceback" in line for line in server.lines)


async def test_a_taken_port_ends_the_start_with_its_owner(tmp_path: Path) -> None:
    async with model_server() as model:
        config = str(write_config(tmp_path, model))
        refused = await anyio.to_thread.run_sync(
            lambda: nanobot("run", config, "-a", f"127.0.0.1:{model.port}", home=tmp_path)
        )
    assert refused.returncode == 1
    assert f"Port {model.port} " in refused.stderr
    assert "(pid " in refused.stderr
    assert not (tmp_path / "nanobot" / "nanobot.db").exists()


def test_r13_the_program_refuses_to_listen_beyond_loopback(tmp_path: Path) -> None:
    refused = nanobot("run", "-a", f"0.0.0.0:{free_port()}", home=tmp_path)
    assert refused.returncode == 2
    assert "without signing in" in refused.stderr
    assert "Traceback" not in refused.stderr
