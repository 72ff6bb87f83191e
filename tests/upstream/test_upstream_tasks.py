"""Servers that answer calls with tasks: for those who call their tools, a call stays a call."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.abc import TaskStatus
from starlette.responses import JSONResponse
from tests.peers.nodes import everything
from tests.peers.programs import clean_env, started
from tests.upstream.world import running, text_of, until, use
from tests.wire.http_peer import Answer, Asked, Peer, answer, serving

from nanobot.config.model import McpServer
from nanobot.errors import UpstreamTimeout
from nanobot.upstream.connection import Upstream
from nanobot.wire.call import Call, Caller, Deferral
from nanobot.wire.rpc import Payload, RpcError

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
TASKS = "io.modelcontextprotocol/tasks"
INFO = {"name": "far", "version": "1"}
ABOUT: dict[str, Any] = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}, "extensions": {TASKS: {}}},
}
FORM = Caller(era="modern", version="2026-07-28", capabilities={"elicitation": {}})


@asynccontextmanager
async def with_tasks(tmp_path: Path, **settings: Any) -> AsyncGenerator[tuple[Upstream, Path]]:
    """The upstream, and the file with what the server saw."""
    seen = tmp_path / "seen"
    argv = [sys.executable, "-W", "ignore", "-m", "tests.peers.task_server", str(seen)]
    with started(argv, env=clean_env(tmp_path), cwd=ROOT, announces=r"serving (http://\S+)") as peer:
        async with running(McpServer(name="jobs", url=peer.url, **settings)) as upstream:
            yield upstream, seen


async def test_a_task_is_waited_for_and_its_result_is_that_of_the_call(tmp_path: Path) -> None:
    async with with_tasks(tmp_path) as (upstream, _):
        result = await use(upstream, "slow_compute", seconds=0.2, label="seven")
        assert text_of(result) == "computed seven"
        assert text_of(await use(upstream, "greet", name="Ada")) == "Hello, Ada!"
        failed = await use(upstream, "failing_job")
        assert failed["isError"] is True
        with pytest.raises(RpcError, match="the job could not be run") as refused:
            await use(upstream, "protocol_error_job")
        assert refused.value.rpc_code == -32603


async def test_what_a_task_says_of_itself_is_progress_of_the_call(tmp_path: Path) -> None:
    told: list[Any] = []

    def notify(method: str, params: Payload) -> None:
        told.append((method, params.object()["message"]))

    async with with_tasks(tmp_path) as (upstream, _):
        result = await use(upstream, "narrate", Call(wants_progress=True, notify=notify))
    assert text_of(result) == "told everything"
    assert told == [("notifications/progress", "half way"), ("notifications/progress", "nearly there")]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_questions_of_a_task_are_put_to_whoever_called(tmp_path: Path, era: Any) -> None:
    asked: list[str] = []

    async def ask(method: str, params: Payload) -> Payload:
        field = next(iter(params.object()["requestedSchema"]["properties"]))
        asked.append(field)
        return Payload.of({"action": "accept", "content": {field: field.upper()}})

    caller = Caller(era=era, capabilities={"elicitation": {}})
    async with with_tasks(tmp_path) as (upstream, _):
        result = await use(upstream, "multi_input", Call(caller=caller, ask=ask))
    assert text_of(result) == "{'first': 'FIRST'} {'second': 'SECOND'}"
    assert sorted(asked) == ["first", "second"]


async def test_a_call_that_is_given_up_has_its_task_cancelled(tmp_path: Path) -> None:
    async with with_tasks(tmp_path) as (upstream, seen):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: use(upstream, "slow_compute", seconds=60))
            await until(lambda: seen.exists() and "asked" in seen.read_text())
            group.cancel_scope.cancel()
        await until(lambda: "ended cancelled" in seen.read_text())
        assert "told to cancel" in seen.read_text()


async def test_a_client_that_can_come_back_is_told_at_once_that_this_is_a_task(tmp_path: Path) -> None:
    changed = anyio.Event()
    deferral = Deferral(changed.set)
    async with with_tasks(tmp_path) as (upstream, _), anyio.create_task_group() as group:
        group.start_soon(use, upstream, "confirm_delete", Call(caller=FORM, deferral=deferral, ask=never))
        with anyio.fail_after(30):
            await changed.wait()
        assert deferral.due <= anyio.current_time()
        group.cancel_scope.cancel()


async def never(method: str, params: Payload) -> Payload:
    await anyio.sleep_forever()
    raise AssertionError


def tasked(states: Callable[[int], dict[str, Any] | None]) -> Peer:
    """A modern server whose only tool is a task; `states` gives what is said of it each time, or not."""

    async def respond(asked: Asked) -> Answer:
        match asked.method:
            case "server/discover":
                return answer(asked, ABOUT)
            case "tools/call":
                return answer(asked, {"resultType": "task", **state("working", pollIntervalMs=0)})
            case "tasks/get":
                said = states(peer.times("tasks/get"))
                if said is None:
                    await anyio.sleep_forever()
                return answer(asked, said)
            case "tasks/cancel":
                return answer(asked, {})
            case _:
                return None

    peer = Peer(respond)
    return peer


def state(status: str, **more: Any) -> dict[str, Any]:
    times = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
    return {"taskId": "t-1", "status": status, "ttlMs": None, **times, **more}


async def test_the_task_is_named_in_a_header_and_is_asked_for_with_the_extension_declared() -> None:
    done = state("completed", result={"content": [], "odd": [1, {"kept": 2.5}]})
    peer = tasked(lambda times: done)
    async with serving(peer) as url, running(McpServer(name="far", url=url)) as upstream:
        result = await use(upstream, "x")
    assert result == {"content": [], "odd": [1, {"kept": 2.5}]}
    asked = next(one for one in peer.asked if one.method == "tasks/get")
    assert asked.headers["mcp-name"] == "t-1"
    meta = asked.message["params"]["_meta"]
    assert TASKS in meta["io.modelcontextprotocol/clientCapabilities"]["extensions"]


@pytest.mark.parametrize(
    "said",
    [{"status": "odd"}, {"nothing": 1}, {"taskId": "t-1", "status": "completed"}, state("cancelled")],
    ids=["status", "empty", "no-result", "cancelled"],
)
async def test_a_task_that_says_nonsense_or_ends_without_a_result_is_an_error(said: dict[str, Any]) -> None:
    peer = tasked(lambda times: said)
    async with serving(peer) as url, running(McpServer(name="far", url=url)) as upstream:
        with pytest.raises(RpcError, match="task"):
            await use(upstream, "x")


async def test_a_question_that_stays_open_is_put_once() -> None:
    question: dict[str, Any] = {
        "method": "elicitation/create",
        "params": {"message": "?", "requestedSchema": {}},
    }
    waits = state("input_required", inputRequests={"q": question}, pollIntervalMs=0)
    done = state("completed", result={"content": []})
    peer = tasked(lambda times: done if times > 3 else waits)
    asked: list[str] = []

    async def ask(method: str, params: Payload) -> Payload:
        asked.append(method)
        return Payload.of({"action": "decline"})

    async with serving(peer) as url, running(McpServer(name="far", url=url)) as upstream:
        await use(upstream, "x", Call(caller=FORM, ask=ask))
    assert asked == ["elicitation/create"]
    assert peer.times("tasks/update") == 1


async def test_a_server_that_falls_silent_over_a_task_is_given_up_and_told_so() -> None:
    peer = tasked(lambda times: None)
    far = McpServer(name="far", tool_timeout_s=0.3)
    async with serving(peer) as url, running(replace(far, url=url)) as upstream:
        with pytest.raises(UpstreamTimeout):
            await use(upstream, "x")
    assert peer.times("tasks/cancel") == 1


@pytest.mark.parametrize("ask_for_input", [False, True])
async def test_a_tool_of_2025_that_needs_a_task_is_an_ordinary_one(ask_for_input: bool) -> None:
    command, *args = everything("stdio")
    server = McpServer(name="all", command=command, args=tuple(args))
    asked: list[str] = []
    told: list[str] = []

    async def ask(method: str, params: Payload) -> Payload:
        asked.append(method)
        return Payload.of({"action": "accept", "content": {"interpretation": "technical"}})

    def notify(method: str, params: Payload) -> None:
        told.append(str(params.object().get("message")))

    call = Call(caller=Caller(capabilities={"elicitation": {}}), ask=ask, notify=notify, wants_progress=True)
    params = Payload.of(
        {"name": "simulate-research-query", "arguments": {"topic": "owls", "ambiguous": ask_for_input}}
    )
    async with running(server) as upstream:
        tools = {entry.key: entry.definition.object() for entry in await upstream.listing("tools")}
        assert "taskSupport" not in tools["simulate-research-query"].get("execution", {})
        result = (await upstream.request("tools/call", params, call)).object()
    assert "owls" in json.dumps(result)
    assert "io.modelcontextprotocol/related-task" not in result.get("_meta", {})
    assert asked == (["elicitation/create"] if ask_for_input else [])
    assert told


def failing(code: int = -32603) -> dict[str, Any]:
    return {"code": code, "message": "db hiccup"}


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update"])
async def test_an_error_about_a_task_is_not_the_end_of_it(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nanobot.upstream.tasks.AGAIN_S", 0.01)
    question = {"q": {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}}}

    async def respond(asked: Asked) -> Answer:
        if asked.method == method and peer.times(method) == 1:
            return JSONResponse({"jsonrpc": "2.0", "id": asked.message["id"], "error": failing()})
        if asked.method == "tasks/get":
            if peer.times("tasks/update") > (1 if method == "tasks/update" else 0):
                return answer(asked, state("completed", result={"content": []}))
            return answer(asked, state("input_required", inputRequests=question, pollIntervalMs=0))
        return await tasked(lambda times: None).on_request(asked)

    async def ask(method: str, params: Payload) -> Payload:
        return Payload.of({"action": "decline"})

    peer = Peer(respond)
    async with serving(peer) as url, running(McpServer(name="far", url=url)) as upstream:
        assert await use(upstream, "x", Call(caller=FORM, ask=ask)) == {"content": []}
    assert peer.times("tasks/cancel") == 0


async def test_a_task_that_the_server_does_not_know_any_more_is_over() -> None:
    async def respond(asked: Asked) -> Answer:
        if asked.method == "tasks/get":
            return JSONResponse({"jsonrpc": "2.0", "id": asked.message["id"], "error": failing(-32602)})
        return await tasked(lambda times: None).on_request(asked)

    async with serving(Peer(respond)) as url, running(McpServer(name="far", url=url)) as upstream:
        with pytest.raises(RpcError, match="db hiccup"):
            await use(upstream, "x")


async def test_a_question_that_is_withdrawn_is_not_waited_for() -> None:
    question = {"q": {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}}}
    waits = state("input_required", inputRequests=question, pollIntervalMs=0)
    done = state("completed", result={"content": []})
    peer = tasked(lambda times: waits if times < 3 else done)
    async with serving(peer) as url, running(McpServer(name="far", url=url)) as upstream:
        assert await use(upstream, "x", Call(caller=FORM, ask=never)) == {"content": []}
    assert peer.times("tasks/update") == 0


@pytest.mark.parametrize(
    "odd",
    [{"statusMessage": None}, {"pollIntervalMs": "500"}, {"ttlMs": "x"}, {"inputRequests": 5}],
    ids=["message", "poll", "ttl", "questions"],
)
async def test_a_task_with_an_odd_field_is_a_task_all_the_same(odd: dict[str, Any]) -> None:
    done = state("completed", result={"content": [], "odd": True})

    async def respond(asked: Asked) -> Answer:
        if asked.method == "tools/call":
            return answer(asked, {"resultType": "task", **state("working"), **odd})
        return await tasked(lambda times: done).on_request(asked)

    async with serving(Peer(respond)) as url, running(McpServer(name="far", url=url)) as upstream:
        assert await use(upstream, "x") == {"content": [], "odd": True}


@pytest.mark.parametrize("wrong", [{"taskId": None}, {"status": "resting"}], ids=["id", "status"])
async def test_what_is_no_task_is_no_result_either(wrong: dict[str, Any]) -> None:
    async def respond(asked: Asked) -> Answer:
        if asked.method == "tools/call":
            return answer(asked, {"resultType": "task", **state("working"), **wrong})
        return await tasked(lambda times: None).on_request(asked)

    async with serving(Peer(respond)) as url, running(McpServer(name="far", url=url)) as upstream:
        with pytest.raises(RpcError, match="task"):
            await use(upstream, "x")


async def test_a_task_cannot_end_with_another_question_or_task() -> None:
    nested = {"resultType": "input_required", "requestState": "s"}
    peer = tasked(lambda times: state("completed", result=nested))
    async with serving(peer) as url, running(McpServer(name="far", url=url)) as upstream:
        with pytest.raises(RpcError, match="what is no result"):
            await use(upstream, "x")
    assert peer.times("tools/call") == 1


async def test_a_task_outlives_an_absence_of_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nanobot.upstream.tasks.AGAIN_S", 0.05)
    seen = anyio.Event()

    def working(times: int) -> dict[str, Any]:
        seen.set()
        return state("working", pollIntervalMs=0)

    done = state("completed", result={"content": []})
    results: list[Any] = []
    leaves = anyio.Event()

    async def first(*, task_status: TaskStatus[str]) -> None:
        async with serving(tasked(working)) as url:
            task_status.started(url)
            await leaves.wait()

    async with anyio.create_task_group() as group:
        url = await group.start(first)
        async with running(McpServer(name="far", url=url), backoff_s=(0.2,)) as upstream:

            async def call() -> None:
                results.append(await use(upstream, "x"))

            group.start_soon(call)
            with anyio.fail_after(30):
                await seen.wait()
            leaves.set()
            await until(lambda: upstream.state.state == "backoff")
            async with serving(tasked(lambda times: done), urlsplit(url).port or 0):
                await until(lambda: results)
    assert results == [{"content": []}]


async def test_the_first_call_of_a_connection_reads_the_list_with_what_its_caller_brought() -> None:
    about: dict[str, Any] = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
    needs_task: dict[str, Any] = {
        "name": "x",
        "inputSchema": {"type": "object"},
        "execution": {"taskSupport": "required"},
    }

    async def respond(asked: Asked) -> Answer:
        if asked.verb == "POST" and asked.headers.get("authorization") != "Bearer mine":
            return JSONResponse({}, 401)
        match asked.method:
            case "initialize":
                result = {"protocolVersion": "2025-11-25", "capabilities": about, "serverInfo": INFO}
                return answer(asked, result)
            case "tools/list":
                return answer(asked, {"tools": [needs_task]})
            case "tools/call":
                assert "task" in asked.message["params"]
                return answer(asked, {"task": {"taskId": "t", "status": "completed"}})
            case "tasks/result":
                return answer(asked, {"content": [], "of": "task"})
            case _:
                return None

    peer = Peer(respond)
    caller = Caller(values={"http:bearer-token": "mine"})
    async with serving(peer) as url:
        far = McpServer(
            name="far",
            url=url,
            protocol="legacy",
            headers={"Authorization": "Bearer ${http:bearer-token}"},
            personal_headers=frozenset({"Authorization"}),
        )
        async with running(far) as upstream:
            assert await use(upstream, "x", Call(caller=caller)) == {"content": [], "of": "task"}
    assert peer.times("tools/list") == 1
