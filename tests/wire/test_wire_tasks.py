"""Clients that come back for the result of a call that takes long."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.upstream.world import until
from tests.wire.world import META, Client, TinyService, account_from_header, modern, serving

from nanobot.store.store import open_store
from nanobot.wire.home import Home

pytestmark = pytest.mark.anyio
TASKS = "io.modelcontextprotocol/tasks"
DECLARED: dict[str, Any] = {
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "extensions": {TASKS: {}}}
}


async def call(client: Client, tool: str, *, hold: bool = False, **headers: str) -> Any:
    """The result of a call that says that it takes long. `hold`: until the service is released."""
    params = {"name": "long", "arguments": {"as": tool, "hold": hold}}
    body = modern("tools/call", params, **DECLARED)
    answer = await client.post(body, **named("tools/call", "long"), **headers)
    return answer.json()["result"]


async def ask(
    client: Client, method: str, id: str, headers: dict[str, str] | None = None, **more: Any
) -> Any:
    """The result, or the error if there is one."""
    body = modern(method, {"taskId": id, **more}, **DECLARED)
    answer = (await client.post(body, **{**named(method, id), **(headers or {})})).json()
    return answer.get("result", answer.get("error"))


def named(method: str, name: str) -> dict[str, str]:
    return {"mcp_protocol_version": "2026-07-28", "mcp_method": method, "mcp_name": name}


async def test_a_long_call_becomes_a_task_and_its_result_is_there_when_it_is_done() -> None:
    service = TinyService()
    async with serving(service) as client:
        task = await call(client, "wait")
        assert task["resultType"] == "task"
        assert task["status"] == "working"
        assert (task["ttlMs"], task["pollIntervalMs"]) == (3_600_000, 1000)
        assert "result" not in task
        working = await ask(client, "tasks/get", task["taskId"])
        assert (working["status"], working["resultType"]) == ("working", "complete")
        service.release.set()
        done = await over(client, task["taskId"])
    assert done["status"] == "completed"
    assert done["result"] == {"content": [{"type": "text", "text": "released"}]}
    assert not service.was_cancelled.is_set()


async def over(client: Client, id: str, *, or_asks: bool = False) -> Any:
    """The task when it is done, or wants to know something."""
    going_on = {"working"} if or_asks else {"working", "input_required"}
    with anyio.fail_after(10):
        while True:
            task = await ask(client, "tasks/get", id)
            if task["status"] not in going_on:
                return task


async def test_questions_of_a_task_are_answered_one_by_one_and_unknown_keys_are_ignored() -> None:
    async with serving(TinyService()) as client:
        id = (await call(client, "ask"))["taskId"]
        task = await over(client, id, or_asks=True)
        ((key, question),) = task["inputRequests"].items()
        assert question["method"] == "elicitation/create"
        other = await ask(client, "tasks/update", id, inputResponses={"other": {}})
        assert set(other) == {"resultType", "_meta"}
        assert (await ask(client, "tasks/get", id))["status"] == "input_required"
        await ask(client, "tasks/update", id, inputResponses={key: {"action": "decline"}})
        assert "decline" in (await over(client, id))["result"]["content"][0]["text"]


async def test_a_cancelled_task_is_cancelled_and_one_that_is_over_stays_as_it_is() -> None:
    service = TinyService()
    async with serving(service) as client:
        id = (await call(client, "wait"))["taskId"]
        assert set(await ask(client, "tasks/cancel", id)) == {"resultType", "_meta"}
        assert (await over(client, id))["status"] == "cancelled"
        assert service.was_cancelled.is_set()
        assert set(await ask(client, "tasks/cancel", id)) == {"resultType", "_meta"}
        assert (await ask(client, "tasks/get", id))["status"] == "cancelled"


async def test_an_error_of_a_task_is_told_as_the_call_would_have_told_it() -> None:
    service = TinyService()
    async with serving(service) as client:
        held = [(await call(client, tool, hold=True))["taskId"] for tool in ("unavailable", "bug")]
        service.release.set()
        gone, bug = [await over(client, id) for id in held]
        assert gone["status"] == bug["status"] == "failed"
        assert gone["error"]["code"] == -32603
        assert gone["error"]["data"] == {"server": "far", "reason": "connection refused", "retryable": True}
        assert "secret detail" not in str(bug)


async def test_a_client_that_did_not_declare_tasks_waits_and_may_not_ask_for_any() -> None:
    service = TinyService()
    async with serving(service) as client:
        id = (await call(client, "wait"))["taskId"]
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            body = modern(method, {"taskId": id, "inputResponses": {}})
            answer = await client.post(body, **named(method, id))
            assert answer.status_code == 400
            assert answer.json()["error"]["code"] == -32021
            needed = answer.json()["error"]["data"]["requiredCapabilities"]
            assert needed == {"extensions": {TASKS: {}}}
        assert (await ask(client, "tasks/get", id))["status"] == "working"


async def test_what_is_no_task_of_the_client_is_refused_alike() -> None:
    async with serving(TinyService(), wrap=account_from_header) as client:
        id = (await call(client, "wait", x_account="ada"))["taskId"]
        ours = {"x_account": "ada"}
        foreign = await ask(client, "tasks/get", id, {"x_account": "eve"})
        unknown = await ask(client, "tasks/get", "task_nothing", ours)
        assert foreign["code"] == unknown["code"] == -32602
        assert foreign["message"].replace(id, "") == unknown["message"].replace("task_nothing", "")
        for method in ("tasks/update", "tasks/cancel"):
            refused = await ask(client, method, id, {"x_account": "eve"}, inputResponses={})
            assert refused["code"] == -32602
        assert (await ask(client, "tasks/get", id, ours))["status"] == "working"
        for method in ("tasks/result", "tasks/list"):
            assert (await ask(client, method, id, ours))["code"] == -32601
        mismatched = await ask(client, "tasks/get", id, {**ours, "mcp_name": "task_other"})
        assert mismatched["code"] == -32020


async def test_who_has_too_many_tasks_waits_for_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nanobot.wire.tasks.MOST_RUNNING", 3)
    service = TinyService()
    results: list[Any] = []

    async def one() -> None:
        results.append(await call(client, "wait"))

    async with serving(service) as client, anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(one)
        await until(lambda: len(results) == 3)
        assert {result["resultType"] for result in results} == {"task"}
        await until(lambda: len(service.callers) == 8)
        service.release.set()
    assert [result["resultType"] for result in results[3:]] == ["complete"] * 5


async def test_a_task_that_nobody_asks_for_any_more_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nanobot.wire.tasks.KEPT_S", 0.2)
    service = TinyService()
    async with serving(service) as client:
        assert (await call(client, "wait"))["resultType"] == "task"
        with anyio.fail_after(10):
            await service.was_cancelled.wait()


async def test_a_result_outlives_the_process_and_interrupted_work_has_failed(tmp_path: Any) -> None:
    service = TinyService()
    async with open_store(tmp_path / "nanobot.db") as store:
        first = Home(tasks=store.mcp_tasks, process="first", is_alive=lambda process: True)
        async with serving(service, home=first) as client:
            done = (await call(client, "echo", hold=True))["taskId"]
            service.release.set()
            await over(client, done)
            service.release = anyio.Event()
            lost = (await call(client, "wait"))["taskId"]

            beside = Home(tasks=store.mcp_tasks, process="beside", is_alive=lambda process: True)
            async with serving(service, home=beside) as other:
                assert (await ask(other, "tasks/get", lost))["status"] == "working"
                refused = await ask(other, "tasks/cancel", lost)
                assert refused["data"] == {"retryable": True}

        later = Home(tasks=store.mcp_tasks, process="later")
        async with serving(service, home=later) as client:
            assert (await ask(client, "tasks/get", done))["result"]["content"][0]["type"] == "text"
            failed = await ask(client, "tasks/get", lost)
            assert failed["status"] == "failed"
            assert failed["error"]["data"] == {"reason": "restart"}
            assert set(await ask(client, "tasks/cancel", lost)) == {"resultType", "_meta"}


async def test_tasks_are_announced_to_modern_clients_alone() -> None:
    async with serving(TinyService()) as client:
        body = modern("server/discover")
        modern_one = await client.post(body, mcp_protocol_version="2026-07-28", mcp_method="server/discover")
        assert modern_one.json()["result"]["capabilities"]["extensions"] == {TASKS: {}}
        legacy = await client.initialize()
        assert "extensions" not in legacy.json()["result"]["capabilities"]
    assert META["io.modelcontextprotocol/clientCapabilities"] == {}
