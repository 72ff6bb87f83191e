"""Agents called as tools: threads of sessions, what is told meanwhile, and what comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.world import World, says_done, tool, until_ended, world

from nanobot.aio import task_group
from nanobot.config.model import Agent
from nanobot.config.places import Reference
from nanobot.llm.scripted import calls, fails, says, slow
from nanobot.wire.call import Call, Caller
from nanobot.wire.rpc import Payload, RpcError

pytestmark = pytest.mark.anyio

COMPLETION = "ai.nanobot.progress/completion"


async def chat(w: World, prompt: str, call: Call, *, agent: str = "main") -> dict[str, Any]:
    params = Payload.of({"name": f"chat-with-{agent}", "arguments": {"prompt": prompt}})
    return (await w.chats.request("tools/call", params, call)).object()


def text(result: dict[str, Any]) -> str:
    return "".join(block["text"] for block in result["content"])


def session(id: str, **rest: Any) -> Call:
    return Call(caller=Caller(session=id), **rest)


async def test_each_agent_is_listed_with_a_description(tmp_path: Path) -> None:
    agents = [Agent(id="ops/deploy", name="Deployer"), Agent(id="quiet", description="Says little")]
    async with world(tmp_path, agents=agents) as w:
        listed = {entry.key: entry.definition.object() for entry in await w.chats.listing("tools")}
        assert list(listed) == ["chat-with-main", "chat-with-ops-deploy", "chat-with-quiet"]
        assert listed["chat-with-ops-deploy"]["description"] == "Deployer"
        assert listed["chat-with-quiet"]["description"] == "Says little"
        assert listed["chat-with-main"]["inputSchema"]["required"] == ["prompt"]


async def test_calls_of_one_session_continue_one_conversation(tmp_path: Path) -> None:
    async with world(tmp_path, [says("Hello Ann"), says("You are Ann"), says("Who?")]) as w:
        assert text(await chat(w, "I am Ann", session("s1"))) == "Hello Ann"
        assert text(await chat(w, "Who am I?", session("s1"))) == "You are Ann"
        assert text(await chat(w, "Who am I?", session("s2"))) == "Who?"
        assert [len(r.messages) for r in w.model.requests] == [1, 3, 1]


async def test_without_a_session_the_id_to_go_on_with_is_returned(tmp_path: Path) -> None:
    modern = Caller(era="modern", version="2026-07-28")
    async with world(tmp_path, [says("one"), says("two"), says("other")]) as w:
        first = await chat(w, "1", Call(caller=modern))
        id = first["_meta"]["ai.nanobot/session"]
        second = await chat(w, "2", Call(caller=modern, meta={"ai.nanobot/session": id}))
        assert second["_meta"]["ai.nanobot/session"] == id
        other = await chat(w, "3", Call(caller=modern))
        assert other["_meta"]["ai.nanobot/session"] != id
        assert [len(r.messages) for r in w.model.requests] == [1, 3, 1]
        with pytest.raises(RpcError, match="unknown session") as refused:
            await chat(w, "4", Call(caller=modern, meta={"ai.nanobot/session": "nobody"}))
        assert refused.value.rpc_code == -32602
        stranger = Caller(era="modern", account="stranger")
        with pytest.raises(RpcError, match="unknown session"):
            await chat(w, "5", Call(caller=stranger, meta={"ai.nanobot/session": id}))


async def test_an_agent_without_memory_answers_once(tmp_path: Path) -> None:
    async with world(tmp_path, [says("one"), says("two")], chat=False) as w:
        for _ in range(2):
            assert "_meta" not in await chat(w, "hi", session("s"))
        assert [len(r.messages) for r in w.model.requests] == [1, 1]
        assert await w.engine.threads() == []


async def test_errors_are_results_and_results_are_never_empty(tmp_path: Path) -> None:
    async with world(tmp_path, [fails("authentication", "The key is wrong.")]) as w:
        result = await chat(w, "hi", session("s"))
        assert result["isError"] is True
        assert "The key is wrong." in text(result)
        bad = Payload.of({"name": "chat-with-main", "arguments": {"prompt": "x", "attachments": ["ftp://x"]}})
        assert "invalid attachment URL" in text((await w.chats.request("tools/call", bad, Call())).object())
        with pytest.raises(RpcError, match="unknown tool"):
            await chat(w, "hi", session("s"), agent="nobody")


async def test_progress_is_numbered_and_shows_the_whole_turn(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []

    def notify(method: str, params: Payload) -> None:
        assert method == "notifications/progress"
        told.append(params.object())

    script = [calls("t", a=1), says("It is done")]
    async with world(tmp_path, script, tool("t", says_done)) as w:
        await chat(w, "go", session("s", wants_progress=True, notify=notify))
    assert [n["progress"] for n in told] == [*range(1, len(told) + 1)]
    completions = [n["_meta"][COMPLETION] for n in told]
    assert completions[0]["role"] == "user"
    assert completions[0]["item"]["text"] == "go"
    assert {c["agent"] for c in completions} == {"main"}
    items = [c["item"] for c in completions]
    assert any(i.get("hasMore") and i.get("name") == "t" for i in items)
    [output] = [i for i in items if "output" in i]
    assert output["name"] == "t"
    assert output["output"]["content"] == [{"type": "text", "text": "done"}]
    pieces = [i for i in items if i.get("partial") and i.get("type") == "text"]
    assert "".join(i["text"] for i in pieces) == "It is done"
    assert items[-1] == {
        "id": pieces[0]["id"],
        "hasMore": False,
        "partial": False,
        "type": "text",
        "text": "It is done",
    }
    assert {"id": pieces[0]["id"], "partial": True} in items


async def test_many_small_pieces_are_told_together(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    async with world(tmp_path, [says("word " * 2000)]) as w:
        call = session("s", wants_progress=True, notify=lambda method, params: told.append(params.object()))
        await chat(w, "go", call)
    pieces = [n["_meta"][COMPLETION]["item"] for n in told]
    pieces = [i["text"] for i in pieces if i.get("partial") and "text" in i]
    assert "".join(pieces) == "word " * 2000
    assert pieces[0] == "word "
    assert len(pieces) < 15


async def test_nobody_is_told_who_did_not_ask(tmp_path: Path) -> None:
    told: list[str] = []
    async with world(tmp_path, [says("ok")]) as w:
        await chat(w, "go", session("s", notify=lambda method, params: told.append(method)))
    assert told == []


@pytest.mark.parametrize(("era", "stop"), [("legacy", "cancelled"), ("modern", "completed")])
async def test_r44_a_cancelled_request_stops_its_turn_and_a_lost_connection_does_not(
    tmp_path: Path, era: Any, stop: str
) -> None:
    reached, opened = anyio.Event(), anyio.Event()

    async def wait() -> None:
        reached.set()
        await opened.wait()

    async with world(tmp_path, [slow(says("done"), wait)], all_used=False) as w:
        row = await w.engine.open_thread(key="mcp:s")
        async with w.engine.attach(row.id) as reader:
            async with task_group() as clients:
                clients.start_soon(chat, w, "go", Call(caller=Caller(session="s", era=era)))
                await reached.wait()
                clients.cancel_scope.cancel()
            opened.set()
            [*_, last] = await until_ended(reader)
        assert last.body.stop == stop


async def test_an_agent_asked_inside_a_turn_joins_no_thread(tmp_path: Path) -> None:
    async with world(tmp_path, [says("once")]) as w:
        result = await chat(w, "hi", Call(caller=Caller(session="s"), agents=("other",)))
        assert text(result) == "once"
        assert await w.engine.threads() == []


async def test_r35_agents_that_call_each_other_as_servers_are_stopped_too(tmp_path: Path) -> None:
    again = [calls("chat-with-main", prompt="again")] * 3 + [says("enough")] * 4
    servers = (Reference("nanobot.agent"),)
    async with world(tmp_path, again, mcp_servers=servers, all_used=False) as w:
        assert (await w.ask("go")).stop == "completed"
        assert any(
            "already working on this" in str(o.content)
            for r in range(len(w.model.requests))
            for o in w.outputs(r)
        )
