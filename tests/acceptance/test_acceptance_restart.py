"""`kill -9` while a client is being asked: its session goes on, the tool has run once, nothing is made up."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from tests.peers.programs import Running, serving
from tests.wire.http_peer import Answer, Asked, Peer, answer
from tests.wire.http_peer import serving as remote
from tests.wire.world import BOTH, Client, modern, rpc, tool

pytestmark = pytest.mark.anyio
PEER = Path(__file__).parents[1] / "peers" / "asking_server.py"

LEGACY_SERVER = """
import json, sys
runs = sys.argv[1]
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if message.get("id") == "question":
        send(id=call, result={"content": [{"type": "text", "text": json.dumps(message["result"])}]})
    elif message.get("method") == "initialize":
        send(id=message["id"], result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                                       "serverInfo": {"name": "asking", "version": "1"}})
    elif message.get("method") == "tools/list":
        send(id=message["id"], result={"tools": [{"name": "pay", "inputSchema": {"type": "object"}}]})
    elif message.get("method") == "tools/call":
        with open(runs, "a") as file:
            file.write("run\\n")
        call = message["id"]
        send(id="question", method="elicitation/create",
             params={"message": "Pay?", "requestedSchema": {"type": "object", "properties": {}}})
"""


@contextmanager
def host(home: Path, definition: dict[str, Any]) -> Generator[Running]:
    config = home / "nanobot.yaml"
    peer = {"command": sys.executable, "sandbox": "off", **definition}
    config.write_text(json.dumps({"mcpServers": {"peer": peer}, "publish": {"mcpServers": "peer"}}))
    with serving(str(config), "--default-model", "demo", "--exclude-built-in-agents", home=home) as running:
        yield running


@asynccontextmanager
async def started_beside(*args: str, home: Path) -> AsyncGenerator[Running]:
    """The host, started and stopped in a thread: this one serves what the host connects to."""
    context = serving(*args, home=home)
    running = await anyio.to_thread.run_sync(context.__enter__)
    try:
        yield running
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(context.__exit__, None, None, None)


def client(http: httpx2.AsyncClient, host: Running) -> Client:
    wire = Client(http, host.url + "/mcp", None)  # type: ignore[arg-type]  # it runs elsewhere
    wire.headers = {"content-type": "application/json", "accept": BOTH}
    return wire


async def is_on_record(home: Path, session: str, *, with_text: str = "") -> None:
    with anyio.fail_after(30), closing(sqlite3.connect(home / "nanobot" / "nanobot.db")) as database:
        found = "SELECT 1 FROM mcp_sessions WHERE id = ? AND instr(CAST(state AS TEXT), ?) > 0"
        while not database.execute(found, (session, with_text)).fetchall():  # noqa: ASYNC110  another process writes it
            await anyio.sleep(0.05)


async def test_r3_a_legacy_client_goes_on_after_a_kill_and_the_tool_ran_once(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(LEGACY_SERVER)
    runs = tmp_path / "runs"
    definition = {"args": [str(tmp_path / "server.py"), str(runs)]}
    hello: dict[str, Any] = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "t", "version": "1"},
    }
    async with httpx2.AsyncClient(timeout=30) as http:
        with host(tmp_path, definition) as running:
            wire = client(http, running)
            greeting = await wire.post(rpc("initialize", hello, id=0))
            session = greeting.headers["mcp-session-id"]
            wire.headers["mcp-session-id"] = session
            await wire.post(rpc("notifications/initialized"))
            await is_on_record(tmp_path, session)
            async with wire.events("POST", tool("pay", id=7)) as events:
                question = await events.message()
                assert question["method"] == "elicitation/create"
                running.kill()
                with pytest.raises(httpx2.TransportError):
                    await events.rest()

        with host(tmp_path, definition) as running:
            wire.url = running.url + "/mcp"
            late: dict[str, Any] = {
                "jsonrpc": "2.0",
                "id": question["id"],
                "result": {"action": "accept", "content": {}},
            }
            assert (await wire.post(late)).status_code == 202
            async with wire.events("GET", last_event_id="1-1") as events:
                assert await events.next() == {"": "replay-lost"}
                assert await events.rest() == []
            async with wire.events("POST", rpc("tools/list", id=8)) as events:
                assert [one["name"] for one in (await events.message())["result"]["tools"]] == ["pay"]
            assert runs.read_text() == "run\n"
            async with wire.events("POST", tool("pay", id=9)) as events:
                question = await events.message()
                await wire.post({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
                assert "decline" in (await events.message())["result"]["content"][0]["text"]
            assert (await http.delete(wire.url, headers=wire.headers)).status_code == 200

        with host(tmp_path, definition) as running:
            wire.url = running.url + "/mcp"
            assert (await wire.post(rpc("ping", id=1))).status_code == 404


async def test_a_session_at_a_remote_server_goes_on_after_a_kill_without_a_handshake(tmp_path: Path) -> None:
    begun: list[str] = []

    async def far(asked: Asked) -> Answer:
        if asked.method == "initialize":
            begun.append(f"far-{len(begun)}")
            peer.session = begun[-1]
        if asked.method == "tools/list":
            return answer(asked, {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]})
        return None

    def used() -> list[str]:
        return [one.headers["mcp-session-id"] for one in peer.asked if one.method == "tools/call"]

    peer = Peer(far)
    hello: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
    async with httpx2.AsyncClient(timeout=30) as http, remote(peer) as url:
        config = tmp_path / "nanobot.yaml"
        config.write_text(json.dumps({"mcpServers": {"far": {"url": url}}, "publish": {"mcpServers": "far"}}))
        args = (str(config), "--default-model", "demo", "--exclude-built-in-agents")
        async with started_beside(*args, home=tmp_path) as running:
            wire = client(http, running)
            greeting = await wire.post(rpc("initialize", hello, id=0))
            wire.headers["mcp-session-id"] = session = greeting.headers["mcp-session-id"]
            async with wire.events("POST", tool("work", id=1)) as events:
                assert "result" in await events.message()
            await is_on_record(tmp_path, session, with_text=used()[0])
            running.kill()
        async with started_beside(*args, home=tmp_path) as running:
            wire.url = running.url + "/mcp"
            async with wire.events("POST", tool("work", id=2)) as events:
                assert "result" in await events.message()
        first, second = used()
        assert first == second
        ended = [one.headers["mcp-session-id"] for one in peer.asked if one.verb == "DELETE"]
        assert first not in ended


CAPABLE: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}


def call(name: str, **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
    body = modern("tools/call", {"name": name, "arguments": {}, **params}, **CAPABLE)
    headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": name}
    return body, headers


async def outcome(wire: Client, request: tuple[dict[str, Any], dict[str, str]]) -> dict[str, Any]:
    async with wire.events("POST", request[0], **request[1]) as events:
        return await events.message()


async def test_r3_a_modern_client_is_told_that_its_call_is_lost_and_the_tool_ran_once(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(LEGACY_SERVER)
    runs = tmp_path / "runs"
    definition = {"args": [str(tmp_path / "server.py"), str(runs)]}
    async with httpx2.AsyncClient(timeout=30) as http:
        with host(tmp_path, definition) as running:
            asked = (await outcome(client(http, running), call("pay")))["result"]
            assert asked["resultType"] == "input_required"
            running.kill()
        [key] = asked["inputRequests"]
        retry = call(
            "pay",
            inputResponses={key: {"action": "accept", "content": {}}},
            requestState=asked["requestState"],
        )
        with host(tmp_path, definition) as running:
            told = await outcome(client(http, running), retry)
            assert told["error"]["code"] == -32602
    assert runs.read_text() == "run\n"


async def test_r3_a_state_of_a_modern_server_is_taken_up_after_a_kill(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    definition = {"args": [str(PEER), "stdio", str(runs)], "protocol": "modern"}
    async with httpx2.AsyncClient(timeout=30) as http:
        with host(tmp_path, definition) as running:
            asked = (await outcome(client(http, running), call("greet")))["result"]
            assert asked["resultType"] == "input_required"
            running.kill()
        [key] = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
        retry = call("greet", inputResponses=answers, requestState=asked["requestState"])
        with host(tmp_path, definition) as running:
            told = await outcome(client(http, running), retry)
    assert told["result"]["content"][0]["text"] == "Hello Ada"
    assert runs.read_text() == "greeted\n"
