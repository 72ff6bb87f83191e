"""`session` hooks: what they tell a client in the handshake, and how they keep one out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.hub.hooks_world import load
from tests.hub.world import Server, running

from nanobot.aio import task_group
from nanobot.http import open_http
from nanobot.hub.hooks.events import HooksFailed
from nanobot.hub.hooks.hooks import Hooks
from nanobot.hub.publish import Publisher
from nanobot.wire.call import Caller
from nanobot.wire.memory import memory_pair
from nanobot.wire.server_duplex import serve_duplex

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


async def test_requests_of_the_modern_era_are_no_sessions(tmp_path: Path) -> None:
    assert await greeted(tmp_path, "def greet(payload): raise ValueError", era="modern") == {
        "intro": "Welcome."
    }
