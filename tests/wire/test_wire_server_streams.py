"""Event streams: news of a call, the client's own stream, resuming, listening, stopping."""

from __future__ import annotations

import json

import anyio
import pytest
from tests.wire.world import TinyService, modern, rpc, serving, tool

pytestmark = pytest.mark.anyio

MODERN = {"mcp_protocol_version": "2026-07-28"}
PROGRESS = {"progressToken": "p"}


async def test_a_quick_answer_is_json_and_one_with_news_is_a_stream() -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        quick = await client.post(tool("echo", word="hi"))
        assert quick.headers["content-type"] == "application/json"
        async with client.events("POST", tool("report", meta=PROGRESS)) as events:
            assert events.response.headers["content-type"] == "text/event-stream"
            assert events.response.headers["cache-control"] == "no-cache, no-transform"
            messages = await events.rest()
        progress = [m["params"] for m in messages if m.get("method") == "notifications/progress"]
        assert progress == [
            {"progress": 1, "message": "going", "progressToken": "p"},
            {"progress": 2, "message": "going", "progressToken": "p"},
            {"progress": 5, "message": "going", "progressToken": "p"},
        ]
        assert messages[-1]["result"]["content"][0]["text"] == "reported"


async def test_a_silent_call_that_takes_long_becomes_a_stream() -> None:
    service = TinyService()
    async with serving(service) as client:
        await client.initialize()
        async with client.events("POST", tool("wait")) as events:
            assert await events.next() == {"id": "1-0", "retry": "3000", "data": ""}
            service.release.set()
            assert (await events.next())["id"] == "1-1"


async def test_older_clients_get_no_event_without_a_message() -> None:
    service = TinyService()
    async with serving(service) as client:
        await client.initialize("2025-06-18")
        async with client.events("POST", tool("wait")) as events:
            service.release.set()
            assert "result" in json.loads((await events.next())["data"])


async def test_without_a_token_there_is_no_progress() -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        async with client.events("POST", tool("report")) as events:
            assert [m.get("method") for m in await events.rest()] == ["notifications/message"] * 2 + [None]


@pytest.mark.parametrize("accept", ["application/json", "*/*", "application/json, */*", ""])
async def test_a_client_that_reads_json_only_gets_news_on_its_own_stream(accept: str) -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        async with client.events("GET", accept="text/event-stream") as own:
            assert (await own.next())["id"] == "0-0"
            answer = await client.post(tool("report", meta=PROGRESS), accept=accept)
            assert answer.json()["result"]["content"][0]["text"] == "reported"
            first = await own.message()
            assert (first["method"], first["params"]["progressToken"]) == ("notifications/progress", "p")


async def test_a_spread_out_result_is_one_event_with_the_same_meaning() -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        async with client.events("POST", tool("spread"), accept="text/event-stream") as events:
            assert await events.message() == {
                "jsonrpc": "2.0",
                "id": 1,
                "result": {"content": [], "odd": {"kept": [1, 2.5]}},
            }


async def test_a_question_comes_on_the_stream_of_its_call_and_is_answered_once() -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        async with client.events("POST", tool("ask", id="call")) as events:
            question = await events.message()
            assert question["method"] == "elicitation/create"
            answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {}}}
            assert (await client.post(answer)).status_code == 202
            assert (await client.post({**answer, "result": {"action": "decline"}})).status_code == 202
            reply = await events.message()
            assert reply["id"] == "call"
            assert json.loads(reply["result"]["content"][0]["text"])["action"] == "accept"


async def test_a_question_that_is_refused_fails_the_call_with_that_error() -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        async with client.events("POST", tool("ask")) as events:
            id = (await events.message())["id"]
            await client.post({"jsonrpc": "2.0", "id": id, "error": {"code": -1, "message": "not now"}})
            assert (await events.message())["error"] == {"code": -1, "message": "not now"}


async def test_a_client_that_comes_back_gets_the_open_question_again() -> None:
    async with serving(TinyService()) as client, anyio.create_task_group() as group:
        await client.initialize()

        async def call() -> None:
            answer = await client.post(tool("ask"), accept="application/json")
            assert "accept" in answer.text

        async with client.events("GET") as own:
            await own.next()
            group.start_soon(call)
            asked = await own.message()
        async with client.events("GET") as own:
            assert await own.message() == asked
            await client.post({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}})


async def test_a_cancelled_call_is_answered_as_cancelled_and_its_question_taken_back() -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        async with client.events("POST", tool("ask", id=7)) as events:
            asked = await events.message()
            note = rpc("notifications/cancelled", {"requestId": 7, "reason": "changed my mind"})
            assert (await client.post(note)).status_code == 202
            assert await events.rest() == [
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": asked["id"]}},
                {
                    "jsonrpc": "2.0",
                    "id": 7,
                    "error": {"code": -32800, "message": "Request cancelled: changed my mind"},
                },
            ]


async def test_a_newer_stream_takes_the_place_of_the_older_one() -> None:
    service = TinyService()
    async with serving(service) as client:
        await client.initialize()
        async with client.events("GET") as older:
            await older.next()
            async with client.events("GET") as newer:
                await newer.next()
                assert await older.rest() == []
                service.change("notifications/tools/list_changed")
                assert (await newer.message())["method"] == "notifications/tools/list_changed"


async def test_resource_updates_reach_those_who_subscribed() -> None:
    service = TinyService()
    async with serving(service) as client:
        await client.initialize()
        for _ in range(2):
            subscribed = await client.post(rpc("resources/subscribe", {"uri": "a:1"}, id=1))
            assert subscribed.json()["result"] == {}
        async with client.events("GET") as own:
            await own.next()
            service.change("notifications/resources/updated", {"uri": "a:2"})
            service.change("notifications/resources/updated", {"uri": "a:1"})
            assert (await own.message())["params"] == {"uri": "a:1"}
        unknown = await client.post(rpc("resources/unsubscribe", {"uri": "never"}, id=2))
        assert unknown.json()["result"] == {}
        assert service.followed == [("resources/subscribe", "a:1")]
        await client.http.delete(client.url, headers=client.headers)
        await anyio.wait_all_tasks_blocked()
        assert service.followed[1:] == [("resources/unsubscribe", "a:1")]


async def test_a_call_survives_its_client_and_is_resumed_where_it_stopped() -> None:
    service = TinyService()
    async with serving(service) as client:
        await client.initialize()
        async with client.events("POST", tool("wait", id="long")) as events:
            seen = (await events.next())["id"]
        assert not service.was_cancelled.is_set()
        async with client.events("GET", last_event_id=seen) as resumed:
            service.release.set()
            last = await resumed.next()
            assert json.loads(last["data"])["id"] == "long"
            assert await resumed.rest() == []
        for event, messages in ((seen, 1), (last["id"], 0)):  # also when all is over
            async with client.events("GET", last_event_id=event) as resumed:
                assert len(await resumed.rest()) == messages


async def test_the_own_stream_is_resumed_too() -> None:
    service = TinyService()
    async with serving(service) as client:
        await client.initialize()
        async with client.events("GET") as own:
            seen = (await own.next())["id"]
        for method in ("notifications/tools/list_changed", "notifications/prompts/list_changed"):
            service.change(method)
        async with client.events("GET", last_event_id=seen) as own:
            methods = [(await own.message())["method"] for _ in range(2)]
            assert methods == ["notifications/tools/list_changed", "notifications/prompts/list_changed"]
            service.change("notifications/resources/list_changed")
            assert (await own.message())["method"] == "notifications/resources/list_changed"


@pytest.mark.parametrize("event", ["99-1", "garbage", "0-7-7", "", "1-" + "9" * 5000])
async def test_what_cannot_be_replayed_is_said_so(event: str) -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        async with client.events("GET", last_event_id=event or "-") as own:
            assert own.response.status_code == 200
            first = await own.next()
            while "" not in first:
                first = await own.next()
            assert first == {"": "replay-lost"}


async def test_events_too_old_are_not_replayed() -> None:
    now = 0.0
    service = TinyService()
    async with serving(service, clock=lambda: now) as client:
        await client.initialize()
        async with client.events("POST", tool("report"), accept="text/event-stream") as events:
            await events.rest()
        now = 601
        async with client.events("GET", last_event_id="1-0") as resumed:
            assert await resumed.next() == {"": "replay-lost"}
            assert await resumed.rest() == []


async def test_a_listener_hears_what_it_asked_for_until_the_server_stops() -> None:
    service = TinyService()
    wanted = {"toolsListChanged": True, "promptsListChanged": False, "resourceSubscriptions": ["a:1"]}
    mark = {"io.modelcontextprotocol/subscriptionId": "sub"}
    body = modern("subscriptions/listen", {"notifications": wanted}, id="sub")
    async with serving(service) as client:
        async with client.events("POST", body, mcp_method="subscriptions/listen", **MODERN) as events:
            acknowledged = await events.message()
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
            assert acknowledged["params"] == {
                "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["a:1"]},
                "_meta": mark,
            }
            service.change("notifications/prompts/list_changed")
            service.change("notifications/tools/list_changed")
            tools = await events.message()
            assert (tools["method"], tools["params"]) == ("notifications/tools/list_changed", {"_meta": mark})
            service.change("notifications/resources/updated", {"uri": "a:2"})
            service.change("notifications/resources/updated", {"uri": "a:1"})
            assert (await events.message())["params"] == {"uri": "a:1", "_meta": mark}
            client.endpoint.close()
            end = await events.message()
            assert end["id"] == "sub"
            assert end["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "sub"
            assert await events.rest() == []
        assert (await client.post(rpc("ping", id=1))).status_code == 503
    assert service.followed == [("resources/subscribe", "a:1"), ("resources/unsubscribe", "a:1")]


async def test_when_the_endpoint_stops_open_streams_end_and_calls_are_answered() -> None:
    service = TinyService()
    async with serving(service) as client:
        await client.initialize()
        async with client.events("GET") as own, client.events("POST", tool("wait")) as call:
            await own.next()
            await call.next()
            client.endpoint.close()
            assert await own.rest() == []
            service.release.set()
            assert "result" in await call.message()


async def test_a_reader_too_slow_for_a_flood_loses_its_stream_and_resumes_without_loss() -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        seen: list[int] = []
        last = ""
        async with client.events("POST", tool("flood")) as events:
            try:
                while True:
                    event = await events.next()
                    last = event["id"]
                    if event["data"]:
                        seen.append(json.loads(event["data"])["params"]["data"])
            except StopAsyncIteration:
                pass
        async with client.events("GET", last_event_id=last) as resumed:
            *more, answer = await resumed.rest()
        assert [*seen, *(m["params"]["data"] for m in more)] == list(range(1500))
        assert answer["result"]["content"][0]["text"] == "flooded"


async def test_too_much_progress_of_one_call_shrinks_to_the_latest() -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        async with client.events("POST", tool("hurry", meta=PROGRESS)) as events:
            *progress, answer = await events.rest()
        values = [m["params"]["progress"] for m in progress]
        assert values[-1] == 2999
        assert values == sorted(values)
        assert len(values) < 1000
        assert "result" in answer


async def test_senseless_news_is_dropped_or_mended_and_harms_nobody() -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        async with client.events("POST", tool("mumble", meta=PROGRESS)) as events:
            progress, _, answer = await events.rest()
        assert progress["params"]["progress"] == 0
        assert "result" in answer


async def test_a_client_that_reads_streams_only_gets_one() -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        async with client.events("POST", tool("echo"), accept="text/event-stream") as events:
            assert events.response.headers["content-type"] == "text/event-stream"
            assert "result" in await events.message()
