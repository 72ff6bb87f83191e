"""The chat API: threads, and turns streamed, awaited or left running."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.server.world import Served, served

from nanobot.config.model import ServerSettings
from nanobot.testing.model_server import Reply, ScriptedCall

pytestmark = pytest.mark.anyio

NOWHERE = "00000000-0000-4000-8000-000000000000"


async def test_a_thread_is_made_listed_renamed_and_deleted(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        made = await nanobot.ask("POST", "/api/threads", {"agent": "other", "title": "Plans"})
        assert made.status == 201
        thread = made.json
        assert (thread["agent"], thread["title"], thread["kind"]) == ("other", "Plans", "chat")
        assert made.headers["location"] == f"/api/threads/{thread['id']}"
        assert "folder" not in thread
        assert "account" not in thread

        path = made.headers["location"]
        renamed = await nanobot.ask("PATCH", path, {"title": "Better plans"})
        assert (renamed.status, renamed.json["title"]) == (200, "Better plans")
        listed = (await nanobot.ask("GET", "/api/threads")).json["threads"]
        assert [(t["id"], t["title"]) for t in listed] == [(thread["id"], "Better plans")]

        assert (await nanobot.ask("DELETE", path)).status == 204
        assert (await nanobot.ask("GET", path)).status == 404
        assert (await nanobot.ask("DELETE", path)).status == 404
        assert (await nanobot.ask("GET", "/api/threads")).json == {"threads": []}


async def test_a_key_finds_its_thread_again(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        first = await nanobot.thread(key="notes")
        assert await nanobot.thread(key="notes") == first
        assert await nanobot.thread() != first


async def test_a_new_thread_works_in_a_folder_of_its_own(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        thread = await nanobot.thread()
        row = await nanobot.app.engine.open_thread(id=thread)
        assert Path(row.folder) == tmp_path / "files" / thread


async def test_a_message_without_a_stream_is_answered_when_its_turn_has_ended(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        thread = await nanobot.thread()
        nanobot.model.queue(Reply(text="Four."))
        answer = await nanobot.ask("POST", f"/api/threads/{thread}/messages", {"text": "2+2?"})
        assert answer.status == 200
        assert answer.json["stop"] == "completed"
        assert answer.json["error"] is None
        assert answer.json["agent"] == "main"
        assert [item["text"] for item in answer.json["message"]["items"]] == ["Four."]
        assert answer.json["usage"]["inputTokens"] == 7
        assert answer.json["usage"]["totalTokens"] == 12


async def test_a_streamed_turn_tells_its_text_as_it_grows_and_then_its_end(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        thread = await nanobot.thread()
        nanobot.model.queue(Reply(text="one two three"))
        async with nanobot.events(f"/api/threads/{thread}/messages", {"text": "count"}) as stream:
            assert stream.status == 200
            events = await stream.rest()
    names = [e.event for e in events]
    assert names[:2] == ["message", "chat-in-progress"]
    assert names[-1] == "chat-done"
    messages = [json.loads(e.data) for e in events if e.event == "message"]
    assert messages[0]["role"] == "user"
    assert messages[0]["items"][0]["text"] == "count"
    partial = [m for m in messages if m["items"][0].get("partial")]
    assert "".join(m["items"][0]["text"] for m in partial) == "one two three"
    assert all(m["hasMore"] and m["items"][0]["hasMore"] for m in partial)
    last = messages[-1]
    assert (last["items"][0]["text"], last["items"][0]["partial"]) == ("one two three", False)
    assert {m["id"] for m in partial} == {last["id"]}
    assert {m["items"][0]["id"] for m in partial} == {last["items"][0]["id"]}
    done = json.loads(events[-1].data)
    assert (done["stop"], done["usage"]["outputTokens"]) == ("completed", 5)
    ids = [int(e.id) for e in events if e.id]
    assert ids == sorted(ids)


async def test_a_tool_call_is_told_from_its_start_to_its_result_in_one_item(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        thread = await nanobot.thread()
        folder = tmp_path / "files" / thread
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "note.txt").write_text("remember the milk")
        call = ScriptedCall("read", {"file_path": str(folder / "note.txt")})
        nanobot.model.queue(Reply(calls=(call,)), Reply(text="Milk."))
        async with nanobot.events(f"/api/threads/{thread}/messages", {"text": "read it"}) as stream:
            events = await stream.rest()
        shown = (await nanobot.ask("GET", f"/api/threads/{thread}")).json["messages"]
    items = [
        i for e in events if e.event == "message" for i in json.loads(e.data)["items"] if i["type"] == "tool"
    ]
    assert {i["name"] for i in items if "name" in i} == {"read"}
    started = [i for i in items if i.get("hasMore") and not i.get("partial") and "output" not in i]
    assert started
    assert started[-1]["target"] == "nanobot.system"
    finished = [i for i in items if "output" in i]
    assert len(finished) == 1
    assert "remember the milk" in json.dumps(finished[0]["output"]["content"])
    assert finished[0]["id"] == started[-1]["id"]
    assert isinstance(finished[0]["ms"], int)
    # The history holds the same: the result inside its call, and no message that is only results.
    assert [m["role"] for m in shown] == ["user", "assistant", "assistant"]
    assert shown[1]["items"][-1]["output"]["content"] == finished[0]["output"]["content"]


async def test_a_failing_provider_ends_the_stream_with_its_reason(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        thread = await nanobot.thread()
        nanobot.model.queue(Reply(status=401, error_message="wrong key"))
        async with nanobot.events(f"/api/threads/{thread}/messages", {"text": "hi"}) as stream:
            events = await stream.rest()
    assert [e.event for e in events[-2:]] == ["error", "chat-done"]
    assert json.loads(events[-2].data)["code"] == -32603
    done = json.loads(events[-1].data)
    assert done["stop"] == "error"
    assert done["error"] == json.loads(events[-2].data)["message"]


async def test_without_waiting_the_turn_is_accepted_and_runs(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        thread = await nanobot.thread()
        async with nanobot.events(f"/api/events/{thread}") as watching:
            await watching.until("history-end")
            sent = await nanobot.ask("POST", f"/api/threads/{thread}/messages?wait=false", {"text": "hi"})
            assert sent.status == 202
            seen = await watching.until("chat-done")
    assert json.loads(seen[-1].data)["turn"] == sent.json["turn"]
    assert json.loads(seen[0].data)["id"] == sent.json["message"]


async def test_r44_a_client_that_leaves_its_stream_cancels_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        thread = await nanobot.thread()
        nanobot.model.queue(Reply(text="a long story told slowly", pause_ms=30))
        async with nanobot.events(f"/api/threads/{thread}/messages", {"text": "tell"}) as stream:
            await stream.until("chat-in-progress")
        async with nanobot.events(f"/api/events/{thread}") as watching:
            done = await watching.until("chat-done")
        assert json.loads(done[-1].data)["stop"] == "completed"
        shown = (await nanobot.ask("GET", f"/api/threads/{thread}")).json
    assert shown["running"] is None
    assert shown["messages"][-1]["items"][0]["text"] == "a long story told slowly"


async def test_stop_ends_the_running_turn(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        thread = await nanobot.thread()
        assert (await nanobot.ask("POST", f"/api/threads/{thread}/stop")).json == {"stopped": False}
        nanobot.model.queue(Reply(text="never to be finished at all", pause_ms=500))
        async with nanobot.events(f"/api/threads/{thread}/messages", {"text": "go"}) as stream:
            await stream.until("chat-in-progress")
            running = (await nanobot.ask("GET", f"/api/threads/{thread}")).json["running"]
            assert (await nanobot.ask("POST", f"/api/threads/{thread}/stop")).json == {"stopped": True}
            events = await stream.rest()
    done = json.loads(events[-1].data)
    assert (done["turn"], done["stop"]) == (running, "cancelled")


async def test_messages_to_a_busy_thread_are_answered_in_order_each_stream_its_own(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        thread = await nanobot.thread()
        nanobot.model.queue(Reply(text="first answer", pause_ms=20), Reply(text="second answer"))
        path = f"/api/threads/{thread}/messages"
        async with nanobot.events(path, {"text": "one"}) as first:
            await first.until("chat-in-progress")
            async with nanobot.events(path, {"text": "two"}) as second:
                texts = [text_of(await second.rest()), text_of(await first.rest())]
    assert texts == ["second answer", "first answer"]


def text_of(events: list[Any]) -> str:
    """The last complete text among `events`."""
    messages = [json.loads(e.data) for e in events if e.event == "message"]
    return [m for m in messages if m["role"] == "assistant" and not m.get("hasMore")][-1]["items"][0]["text"]


BAD_BODIES = [
    ("/api/threads", b"{", 400, "invalid_json", None),
    ("/api/threads", b"[]", 422, "invalid_field", None),
    ("/api/threads", b'{"colour":1}', 422, "invalid_field", "colour"),
    ("/api/threads", b'{"title":5}', 422, "invalid_field", "title"),
    ("/api/threads", b'{"title":"' + b"x" * 201 + b'"}', 422, "invalid_field", "title"),
    ("/api/threads", b'{"key":""}', 422, "invalid_field", "key"),
    ("/api/threads", b'{"agent":"ghost"}', 422, "unknown_agent", "agent"),
    ("{thread}/messages", b"{}", 422, "invalid_field", "text"),
    ("{thread}/messages", b'{"text":""}', 422, "invalid_field", "text"),
    ("{thread}/messages", b'{"text":["a"]}', 422, "invalid_field", "text"),
    ("{thread}/messages", b'{"text":"a","agent":"ghost"}', 422, "unknown_agent", "agent"),
    ("{thread}/messages", b'{"text":"\xff"}', 400, "invalid_json", None),
    ("{thread}/messages", b'{"text":"' + b"y" * 5000 + b'"}', 413, "too_large", None),
]


@pytest.mark.parametrize(("path", "body", "status", "code", "field"), BAD_BODIES)
async def test_a_bad_body_is_refused_by_a_sentence_naming_the_field(
    path: str, body: bytes, status: int, code: str, field: str | None, tmp_path: Path
) -> None:
    async with served(tmp_path, settings=ServerSettings(max_body_bytes=4000)) as nanobot:
        thread = await nanobot.thread()
        where = path.replace("{thread}", f"/api/threads/{thread}")
        refused = await nanobot.ask("POST", where, body, {"Content-Type": "application/json"})
        error = refused.json["error"]
        assert (refused.status, error["code"], error.get("field")) == (status, code, field)
        assert error["message"].endswith(".")
        # Nothing came of it.
        assert (await nanobot.ask("GET", f"/api/threads/{thread}")).json["messages"] == []


async def test_a_body_must_say_that_it_is_json(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            refused = await nanobot.ask("POST", "/api/threads", b'{"title":"x"}', {"Content-Type": kind})
            assert (refused.status, refused.json["error"]["code"]) == (415, "content_type")
        charset = {"Content-Type": "application/json; charset=utf-8"}
        assert (await nanobot.ask("POST", "/api/threads", b"{}", charset)).status == 201


async def test_an_unknown_thread_is_not_found_by_any_route(tmp_path: Path) -> None:
    routes = [
        ("GET", "", None),
        ("PATCH", "", {"title": "x"}),
        ("DELETE", "", None),
        ("POST", "/messages", {"text": "x"}),
        ("POST", "/stop", None),
    ]
    async with served(tmp_path) as nanobot:
        for method, rest, body in routes:
            answer = await nanobot.ask(method, f"/api/threads/{NOWHERE}{rest}", body)
            assert (answer.status, answer.json["error"]["code"]) == (404, "not_found")
        assert (await nanobot.ask("GET", f"/api/events/{NOWHERE}")).status == 404
        async with nanobot.events(f"/api/threads/{NOWHERE}/messages", {"text": "x"}) as stream:
            assert stream.status == 404


async def test_the_list_of_threads_is_as_long_as_asked(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        for _ in range(3):
            await nanobot.thread()
        assert len((await nanobot.ask("GET", "/api/threads?limit=2")).json["threads"]) == 2
        for wrong in ("0", "501", "-1", "many", ""):
            refused = await nanobot.ask("GET", f"/api/threads?limit={wrong}")
            assert (refused.status, refused.json["error"]["field"]) == (422, "limit")


async def test_twenty_conversations_at_once_do_not_mix(tmp_path: Path) -> None:
    answers: dict[int, str] = {}

    async def talk(nanobot: Served, number: int) -> None:
        thread = await nanobot.thread()
        said = f'say [[{{"text": "answer {number}"}}]]'
        async with nanobot.events(f"/api/threads/{thread}/messages", {"text": said}) as stream:
            answers[number] = text_of(await stream.rest())

    async with served(tmp_path) as nanobot, anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(talk, nanobot, number)
    assert answers == {number: f"answer {number}" for number in range(20)}
