"""`session` hooks: what they tell a client in the handshake, and how they keep one out."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.hub.hooks_world import Guard, load
from tests.hub.world import Server, running

from nanobot.aio import task_group
from nanobot.builtin.server import BuiltinServer, BuiltinTool
from nanobot.http import open_http
from nanobot.hub.hooks.events import HooksFailed
from nanobot.hub.hooks.hooks import Hooks
from nanobot.hub.publish import Publisher
from nanobot.wire.call import Call, Caller
from nanobot.wire.memory import memory_pair
from nanobot.wire.server_duplex import serve_duplex
from nanobot.wire.service import Description

pytestmark = pytest.mark.anyio


async def greeted(home: Path, code: str, **caller: Any) -> Any:
    (home / "greet.py").write_text(code)
    config = load(home, {"hooks": {"session": "./greet.py#greet"}, "publish": {"introduction": "Welcome."}})
    async with open_http() as http, running(config, Server("tools")) as hub:
        hooks = Hooks(config, http, audit=lambda record: None)
        publisher = Publisher(config, hub, version="1", greeting=hooks.greeting())
        described = await publisher.describe(Caller(**caller))
    return described.capabilities["experimental"]["ai.nanobot"]


async def test_what_a_session_hook_answers_is_told_to_the_client(tmp_path: Path) -> None:
    code = """
def greet(payload):
    return {"_meta": {**payload["_meta"], "seen": [payload["sessionId"], payload["client"]["name"]]}}
"""
    told = await greeted(tmp_path, code, session="s-1", client={"name": "probe"}, meta={"workspace": "w"})
    assert told == {"session": {"workspace": "w", "seen": ["s-1", "probe"]}, "intro": "Welcome."}


async def test_a_session_hook_that_fails_keeps_the_client_out(tmp_path: Path) -> None:
    for code in ("def greet(payload): raise ValueError", "def greet(payload): return {'accept': False}"):
        with pytest.raises(HooksFailed) as refusal:
            await greeted(tmp_path, code)
        assert refusal.value.rpc_code == -32010


async def test_whoever_was_kept_out_stays_out(tmp_path: Path) -> None:
    (tmp_path / "greet.py").write_text("def greet(payload): return {'accept': False, 'reason': 'closed'}")
    config = load(tmp_path, {"hooks": {"session": "./greet.py#greet"}})
    ours, theirs = memory_pair()

    async def ask(method: str, params: Any) -> Any:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        await theirs.send(json.dumps(request).encode())
        with anyio.fail_after(20):
            return json.loads(await theirs.receive())["error"]

    async with open_http() as http, running(config, Server("tools")) as hub, task_group() as group:
        greeting = Hooks(config, http, audit=lambda record: None).greeting()
        publisher = Publisher(config, hub, version="1", greeting=greeting)
        group.start_soon(lambda: serve_duplex(ours, publisher, settings=config.server))
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "probe"}}
        refusal = await ask("initialize", hello)
        assert refusal["code"] == -32010
        assert refusal["data"]["reason"] == "closed"
        assert "before initialize" in (await ask("tools/list", {}))["message"]
        await theirs.aclose()
        await ours.aclose()
        group.cancel_scope.cancel()


@asynccontextmanager
async def at_the_door(home: Path, guard: Guard, **more: Any) -> AsyncGenerator[Publisher]:
    """What is published behind the session hook `guard/door`."""
    config = load(home, {"hooks": {"session": "guard/door"}, "mcpServers": {"guard": {"command": "none"}}})
    async with open_http() as http, running(config, guard.source) as hub:
        hooks = Hooks(config, http, audit=lambda record: None, **more)
        hooks.connect(hub)
        yield Publisher(config, hub, version="1", greeting=hooks.greeting())


def told(description: Description) -> Any:
    return description.capabilities["experimental"]["ai.nanobot"]["session"]


async def test_a_modern_client_passes_once_per_context(tmp_path: Path) -> None:
    def answer(payload: dict[str, Any]) -> Any:
        return {"_meta": {"number": len(guard.seen)}}

    guard = Guard(door=answer)
    here: dict[str, Any] = {"era": "modern", "target": "/mcp", "client": {"name": "a"}}
    elsewhere: list[dict[str, Any]] = [
        {"account": "ada"},
        {"target": "/mcp?x=1"},
        {"client": {"name": "b"}},
        {"session": "s-1"},
        {"thread": "t-1"},
    ]
    async with at_the_door(tmp_path, guard) as publisher:
        assert told(await publisher.describe(Caller(**here))) == {"number": 1}
        assert told(await publisher.describe(Caller(**here))) == {"number": 1}
        for number, other in enumerate(elsewhere, start=2):
            assert told(await publisher.describe(Caller(**{**here, **other}))) == {"number": number}
        assert told(await publisher.describe(Caller(**here))) == {"number": 1}
    assert [payload["sessionId"] for _, payload in guard.seen] == ["", "", "", "", "s-1", "t-1"]
    assert guard.seen[2][1]["url"] == "/mcp?x=1"


async def test_a_session_is_one_context_wherever_it_asks(tmp_path: Path) -> None:
    guard = Guard(door="no objection")
    async with at_the_door(tmp_path, guard) as publisher:
        for target in ("/mcp", "/mcp/ui"):
            await publisher.describe(Caller(era="modern", session="s-1", target=target))
    assert len(guard.seen) == 1


async def test_a_modern_client_that_was_kept_out_may_come_in_later(tmp_path: Path) -> None:
    def answer(payload: dict[str, Any]) -> Any:
        return {"accept": len(guard.seen) == 3, "reason": "closed"}

    guard = Guard(door=answer)
    async with at_the_door(tmp_path, guard) as publisher:
        for _ in range(2):
            with pytest.raises(HooksFailed, match="closed") as refusal:
                await publisher.describe(Caller(era="modern"))
            assert refusal.value.rpc_code == -32010
        await publisher.describe(Caller(era="modern"))
        await publisher.describe(Caller(era="modern"))
    assert len(guard.seen) == 3


async def test_a_context_that_rested_begins_anew(tmp_path: Path) -> None:
    guard, now = Guard(door="no objection"), [0.0]
    async with at_the_door(tmp_path, guard, clock=lambda: now[0]) as publisher:
        for at, asked in [(0, 1), (800, 1), (1600, 1), (2501, 2)]:  # sessions.idleTimeout is 900 s
            now[0] = at
            await publisher.describe(Caller(era="modern"))
            assert len(guard.seen) == asked


async def test_requests_that_come_together_share_the_answer(tmp_path: Path) -> None:
    asked, gate = [anyio.Event(), anyio.Event()], anyio.Event()
    count = 0

    async def door(arguments: dict[str, Any], call: Call) -> Any:
        nonlocal count
        asked[count].set()
        count += 1
        await gate.wait()
        return {"accept": False, "reason": "closed"}

    tool = BuiltinTool(name="door", description="", schema={"properties": {}}, run=door)
    guard = Guard()
    guard.source = BuiltinServer("guard", [tool])
    refused: list[str] = []
    first = anyio.CancelScope()
    async with at_the_door(tmp_path, guard) as publisher, task_group() as group:

        async def ask(scope: anyio.CancelScope) -> None:
            with scope, pytest.raises(HooksFailed) as refusal:
                await publisher.describe(Caller(era="modern"))
            if not scope.cancelled_caught:
                refused.append(refusal.value.message)

        group.start_soon(ask, first)
        await asked[0].wait()
        group.start_soon(ask, anyio.CancelScope())
        group.start_soon(ask, anyio.CancelScope())
        first.cancel()  # who came first leaves before there is an answer
        await asked[1].wait()
        gate.set()
    assert len(refused) == 2
    assert count == 2
