"""`session` hooks: what they tell a client in the handshake, and how they keep one out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.hub.hooks_world import load
from tests.hub.world import Server, running

from nanobot.http import open_http
from nanobot.hub.hooks.events import HooksFailed
from nanobot.hub.hooks.hooks import Hooks
from nanobot.hub.publish import Publisher
from nanobot.wire.call import Caller

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


async def test_requests_of_the_modern_era_are_no_sessions(tmp_path: Path) -> None:
    assert await greeted(tmp_path, "def greet(payload): raise ValueError", era="modern") == {
        "intro": "Welcome."
    }
