"""Watching a thread: the past without a gap to the present, for any number of readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.server.world import Served, served

from nanobot.sse import SseEvent
from nanobot.testing.model_server import Reply

pytestmark = pytest.mark.anyio


def assembled(events: list[SseEvent]) -> list[tuple[str, str]]:
    """Role and text of each message, put together as a client does it."""
    texts: dict[str, dict[str, str]] = {}
    roles: dict[str, str] = {}
    for event in events:
        if event.event == "history-start":
            texts, roles = {}, {}
        if event.event != "message":
            continue
        message = json.loads(event.data)
        roles[message["id"]] = message["role"]
        items = texts.setdefault(message["id"], {})
        for item in message["items"]:
            before = items.get(item["id"], "") if item.get("partial") else ""
            items[item["id"]] = before + item.get("text", "")
    return [(roles[id], "".join(items.values())) for id, items in texts.items()]


async def say(nanobot: Served, thread: str, text: str) -> Any:
    return (await nanobot.ask("POST", f"/api/threads/{thread}/messages", {"text": text})).json


async def test_history_comes_first_between_its_marks(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        thread = await nanobot.thread()
        nanobot.model.queue(Reply(text="Hello."))
        await say(nanobot, thread, "Hi")
        async with nanobot.events(f"/api/events/{thread}") as stream:
            events = await stream.until("history-end")
    assert [e.event for e in events if e.retry is None] == [
        "history-start",
        "message",
        "message",
        "history-end",
    ]
    assert assembled(events) == [("user", "Hi"), ("assistant", "Hello.")]


async def test_a_reader_that_comes_in_the_middle_misses_nothing_and_gets_nothing_twice(
    tmp_path: Path,
) -> None:
    story = " ".join(f"word{n}" for n in range(30))
    async with served(tmp_path) as nanobot:
        thread = await nanobot.thread()
        await say(nanobot, thread, "before")
        nanobot.model.queue(Reply(text=story, pause_ms=5))
        async with nanobot.events(f"/api/threads/{thread}/messages", {"text": "tell"}) as teller:
            for _ in range(4):
                await teller.until("message")
            async with nanobot.events(f"/api/events/{thread}") as stream:
                events = await stream.until("chat-done")
    assert [e.event for e in events].count("chat-in-progress") == 1
    said = assembled(events)
    assert [role for role, _ in said] == ["user", "assistant", "user", "assistant"]
    assert said[-1] == ("assistant", story)


async def test_readers_of_one_thread_see_the_same(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        thread = await nanobot.thread()
        path = f"/api/events/{thread}"
        async with nanobot.events(path) as one, nanobot.events(path) as two:
            await one.until("history-end")
            await two.until("history-end")
            nanobot.model.queue(Reply(text="to both"))
            await say(nanobot, thread, "hello")
            assert assembled(await one.until("chat-done")) == assembled(await two.until("chat-done"))


async def test_a_reader_that_comes_back_during_the_turn_is_told_the_turn_alone(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        thread = await nanobot.thread()
        await say(nanobot, thread, "before")
        nanobot.model.queue(Reply(text="one two three four five six", pause_ms=20))
        async with nanobot.events(f"/api/events/{thread}") as stream:
            await stream.until("history-end")
            sent = await nanobot.ask("POST", f"/api/threads/{thread}/messages?wait=false", {"text": "go"})
            assert sent.status == 202
            first = await stream.until("chat-in-progress")
            first += await stream.until("message")
        last = [e.id for e in first if e.id][-1]
        async with nanobot.events(f"/api/events/{thread}", headers={"Last-Event-ID": last}) as stream:
            again = await stream.until("chat-done")
    assert "history-start" not in [e.event for e in again]
    assert assembled(first + again)[-1] == ("assistant", "one two three four five six")


@pytest.mark.parametrize("seen", ["p_elsewhere.3", "3", "garbage", "x.y.z"])
async def test_an_id_of_another_time_brings_the_whole_history(seen: str, tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        thread = await nanobot.thread()
        await say(nanobot, thread, "hello")
        async with nanobot.events(f"/api/events/{thread}", headers={"Last-Event-ID": seen}) as stream:
            events = await stream.until("history-end")
    assert len(assembled(events)) == 2


async def test_deleting_a_thread_ends_its_readers(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        thread = await nanobot.thread()
        async with nanobot.events(f"/api/events/{thread}") as stream:
            await stream.until("history-end")
            assert (await nanobot.ask("DELETE", f"/api/threads/{thread}")).status == 204
            assert [e.event for e in await stream.rest()] == ["deleted"]


async def test_an_event_stream_is_not_stored_or_transformed_on_its_way(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        thread = await nanobot.thread()
        async with nanobot.client.stream("GET", f"{nanobot.url}/api/events/{thread}") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["cache-control"] == "no-cache, no-transform"
            assert answer.headers["x-accel-buffering"] == "no"


async def test_without_the_ui_there_are_no_pages_and_no_event_streams(tmp_path: Path) -> None:
    async with served(tmp_path, ui=False) as nanobot:
        thread = await nanobot.thread()
        for path in ("/", "/c/x", "/assets/app.js", f"/api/events/{thread}"):
            assert (await nanobot.ask("GET", path)).status == 404
        assert (await say(nanobot, thread, "hi"))["stop"] == "completed"
