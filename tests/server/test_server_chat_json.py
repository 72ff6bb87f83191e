"""Messages and events as clients see them."""

from __future__ import annotations

import json
from typing import Any

from nanobot.agent.events import Delta, Event, MessageAdded, ToolFinished, ToolStarted, TurnStarted
from nanobot.llm.messages import Item, Message, ProviderData, Reasoning, Text, ToolCall, ToolOutput
from nanobot.llm.model import ReasoningDelta, TextDelta
from nanobot.server.chat_json import backlog_sse, body_sse, history_json
from nanobot.sse import SseParser

CALL = ToolCall("i1", "c1", "clock", "{}", target="time", target_type="tool")
RESULT = ToolOutput("i2", "c1", [{"type": "text", "text": "noon"}])


def message(id: str, role: Any, *items: Item) -> Message:
    return Message(id, role, items)


def told(raw: bytes) -> list[tuple[str, Any]]:
    return [(e.event, json.loads(e.data)) for e in SseParser().feed(raw)]


def test_a_result_stands_in_the_item_of_its_call_and_its_own_message_is_gone() -> None:
    history = [message("m1", "assistant", CALL), message("m2", "user", RESULT)]
    (shown,) = history_json(history)
    assert shown["id"] == "m1"
    assert shown["items"][0]["name"] == "clock"
    assert shown["items"][0]["output"] == {"content": [{"type": "text", "text": "noon"}]}
    # What was given is unchanged: showing a conversation twice shows the same.
    assert history_json(history) == [shown]


def test_a_result_without_a_call_stays_where_it_is() -> None:
    (shown,) = history_json([message("m1", "user", RESULT)])
    assert shown["items"][0]["callID"] == "c1"
    assert "name" not in shown["items"][0]


def test_what_providers_keep_for_themselves_is_shown_to_nobody() -> None:
    secret = ProviderData("anthropic", "scope", {"signature": "opaque"})
    shown = history_json([message("m1", "assistant", Reasoning("r", ["why"], secret), CALL)])
    assert "opaque" not in json.dumps(shown)


def test_a_user_message_that_holds_only_results_is_not_told_again() -> None:
    assert body_sse(MessageAdded(message("m2", "user", RESULT))) == b""
    ((_, rest),) = told(body_sse(MessageAdded(message("m2", "user", RESULT, Text("t", "and this")))))
    assert [item["type"] for item in rest["items"]] == ["text"]


def test_a_backlog_tells_each_growing_item_whole_and_each_finished_message_once() -> None:
    user, said = (
        message("m0", "user", Text("t0", "hi")),
        message("m1", "assistant", Text("t1", "one two"), CALL),
    )
    bodies = [
        TurnStarted("turn", "main", user),
        Delta("m1", TextDelta("t1", "one ")),
        Delta("m1", TextDelta("t1", "two")),
        MessageAdded(said),
        ToolStarted("m1", CALL),
        ToolFinished("m1", CALL, RESULT, 5),
        Delta("m2", ReasoningDelta("r2", "so ")),
        Delta("m2", TextDelta("t2", "three ")),
        Delta("m2", ReasoningDelta("r2", "then")),
        Delta("m2", TextDelta("t2", "four")),
    ]
    backlog = [Event(n, "thread", body) for n, body in enumerate(bodies)]

    events = told(backlog_sse(backlog))
    assert [name for name, _ in events].count("chat-in-progress") == 1
    growing = [m["items"][0] for name, m in events if name == "message" and m["id"] == "m2"]
    assert [(i["id"], i["partial"], i["hasMore"]) for i in growing] == [
        ("r2", False, True),
        ("t2", False, True),
    ]
    assert growing[0]["summary"] == [{"text": "so then"}]
    assert growing[1]["text"] == "three four"
    texts = [m["items"][0]["text"] for name, m in events if name == "message" and m["items"][0]["id"] == "t1"]
    assert texts == ["one two"]

    # To somebody who has the history, the messages in it are not told a second time.
    again = told(backlog_sse(backlog, ["m0", "m1"]))
    assert [m["id"] for name, m in again if name == "message"] == ["m1", "m1", "m2", "m2"]
    assert all(m["items"][0]["type"] == "tool" for name, m in again if name == "message" and m["id"] == "m1")
