"""Sessions and threads at the MCP endpoint: what a client sets at its beginning, and coming back to it."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.server.world import Answer, Served, served
from tests.wire.world import modern, rpc, tool

from nanobot.testing.model_server import Reply

pytestmark = pytest.mark.anyio

MODERN = {"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "chat-with-main"}
LIST = {"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


async def initialize(s: Served, **headers: str) -> Answer:
    return await s.ask("POST", "/mcp", rpc("initialize", HELLO, id=1), headers)


def chat(prompt: str, **meta: Any) -> dict[str, Any]:
    params = {"name": "chat-with-main", "arguments": {"prompt": prompt}}
    return modern("tools/call", params, **meta)


async def say(
    s: Served, prompt: str, path: str = "/mcp", *, headers: dict[str, str] | None = None, **meta: Any
):
    return (await s.ask("POST", path, chat(prompt, **meta), {**MODERN, **(headers or {})})).json


async def test_a_session_says_which_agent_and_what_title_its_conversation_has(tmp_path: Path) -> None:
    async with served(tmp_path) as s:
        begun = await initialize(
            s, **{"X-Nanobot-Default-Agent": "other", "X-Nanobot-Description": "Trip  to\tRome"}
        )
        session = {"Mcp-Session-Id": begun.headers["mcp-session-id"]}
        s.model.queue(Reply(text="hello"))
        answer = await s.ask("POST", "/mcp", tool("chat-with-main", prompt="hi"), session)
        assert answer.json["result"]["content"][0]["text"] == "hello"
        [thread] = (await s.ask("GET", "/api/threads")).json["threads"]
        assert (thread["agent"], thread["title"]) == ("other", "Trip to Rome")


async def test_a_default_agent_that_there_is_not_refuses_the_session(tmp_path: Path) -> None:
    async with served(tmp_path) as s:
        refused = await initialize(s, **{"X-Nanobot-Default-Agent": "nobody"})
        assert refused.json["error"]["code"] == -32602
        assert "known: main, other" in refused.json["error"]["message"]
        assert "mcp-session-id" not in refused.headers


async def test_a_modern_client_goes_on_with_a_conversation_by_meta_header_or_path(tmp_path: Path) -> None:
    async with served(tmp_path) as s:
        for text in ("one", "two", "three", "four"):
            s.model.queue(Reply(text=text))
        first = await say(s, "1")
        thread = first["result"]["_meta"]["ai.nanobot/session"]
        await say(s, "2", **{"ai.nanobot/session": thread})
        await say(s, "3", headers={"X-Nanobot-Session-Id": thread})
        last = await say(s, "4", f"/mcp/{thread}")
        assert last["result"]["_meta"]["ai.nanobot/session"] == thread
        assert [len(r.json["messages"]) for r in s.model.requests] == [1, 3, 5, 7]


async def test_a_modern_client_may_speak_in_a_legacy_session(tmp_path: Path) -> None:
    async with served(tmp_path) as s:
        begun = await initialize(s)
        session = {"Mcp-Session-Id": begun.headers["mcp-session-id"]}
        s.model.queue(Reply(text="one"))
        s.model.queue(Reply(text="two"))
        await s.ask("POST", "/mcp", tool("chat-with-main", prompt="1"), session)
        await say(s, "2", f"/mcp/{session['Mcp-Session-Id']}")
        assert [len(r.json["messages"]) for r in s.model.requests] == [1, 3]


async def test_a_modern_request_that_names_two_sessions_means_neither(tmp_path: Path) -> None:
    async with served(tmp_path) as s:
        one, two = await s.thread(), await s.thread()
        header = "X-Nanobot-Session-Id"
        cases: list[tuple[str, dict[str, str], dict[str, Any]]] = [
            ("/mcp", {header: one}, {"ai.nanobot/session": two}),
            (f"/mcp/{one}", {}, {"ai.nanobot/session": two}),
            (f"/mcp/{one}", {header: two}, {}),
            ("/mcp", {header: one}, {"ai.nanobot/session": 7}),
        ]
        for path, headers, meta in cases:
            refused = await s.ask("POST", path, modern("tools/list", **meta), {**LIST, **headers})
            assert refused.status == 400
            assert refused.json["error"]["code"] == -32020
            assert "name different sessions" in refused.json["error"]["message"]
        meta = {"ai.nanobot/session": one}
        same = modern("tools/list", None, **meta)
        assert "result" in (await s.ask("POST", f"/mcp/{one}", same, {**LIST, header: one})).json


async def test_an_unknown_session_is_refused_whatever_is_asked(tmp_path: Path) -> None:
    async with served(tmp_path) as s:
        nobody = str(uuid.uuid4())
        cases: list[tuple[str, dict[str, str], dict[str, Any]]] = [
            (f"/mcp/{nobody}", {}, {}),
            ("/mcp", {"X-Nanobot-Session-Id": nobody}, {}),
            ("/mcp", {}, {"ai.nanobot/session": nobody}),
            ("/mcp", {}, {"ai.nanobot/session": 7}),
        ]
        for path, headers, meta in cases:
            refused = await s.ask("POST", path, modern("tools/list", **meta), {**LIST, **headers})
            assert refused.json["error"] == {"code": -32602, "message": "unknown session"}
