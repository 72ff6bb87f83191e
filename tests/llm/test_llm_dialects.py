"""Three wire formats, one meaning: what is streamed arrives as the same items, or not at all."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.llm.dialects import (
    ALL,
    ANTHROPIC,
    CHAT,
    NUMBER,
    RESPONSES,
    Pair,
    assistant,
    endpoint,
    neutral,
    request,
    result,
    user,
)

from nanobot.llm.endpoint import Quirks
from nanobot.llm.messages import Reasoning, Text, ToolCall
from nanobot.llm.model import ArgumentsDelta, Delta, ProviderError, ReasoningDelta, TextDelta
from nanobot.sse import SseParser
from nanobot.testing.model_reply import Reply, ScriptedCall

pytestmark = pytest.mark.anyio

BUSY = Reply(
    reasoning="Let me think.",
    text="I will ask two tools, é👍.",
    calls=(ScriptedCall("divide", {"a": 1, "b": 0}), ScriptedCall("clock")),
)
each_dialect = pytest.mark.parametrize("pair", ALL, ids=str)


@each_dialect
def test_thinking_text_and_parallel_calls_arrive_as_the_same_items(pair: Pair) -> None:
    answer = pair.read(pair.stream(BUSY))

    assert neutral(answer.items) == [
        ("reasoning", ("Let me think.",)),
        ("text", "I will ask two tools, é👍."),
        ("call", f"call_{NUMBER.decode()}_0", "divide", '{"a": 1, "b": 0}'),
        ("call", f"call_{NUMBER.decode()}_1", "clock", "{}"),
    ]
    assert answer.finish == "tool_calls"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (7, 5)


@each_dialect
def test_a_plain_document_means_the_same_as_the_stream(pair: Pair) -> None:
    streamed = pair.read(pair.stream(BUSY))
    reading = pair.reading()
    reading.whole(json.dumps(pair.server.document(BUSY)).replace("@@id--@@", NUMBER.decode()).encode())

    whole = reading.response()
    assert [(n[0], n[1:3]) for n in neutral(whole.items)] == [(n[0], n[1:3]) for n in neutral(streamed.items)]
    assert whole.finish == streamed.finish


@each_dialect
def test_ids_of_deltas_are_ids_of_the_final_items(pair: Pair) -> None:
    deltas: list[Delta] = []
    answer = pair.read(pair.stream(BUSY), deltas.append)

    written: dict[str, str] = {}
    for delta in deltas:
        assert isinstance(delta, TextDelta | ReasoningDelta | ArgumentsDelta)
        written[delta.item_id] = written.get(delta.item_id, "") + delta.text
    finished: dict[str, str] = {}
    for item in answer.items:
        match item:
            case Text():
                finished[item.id] = item.text
            case Reasoning():
                finished[item.id] = "".join(item.summary)
            case ToolCall():
                finished[item.id] = item.arguments
            case _:
                pytest.fail(f"unexpected {item}")
    assert written == finished
    assert len(finished) == 4


@each_dialect
def test_a_stream_cut_after_any_event_is_an_error_and_never_half_an_answer(pair: Pair) -> None:
    events = pair.stream(BUSY)
    # A chat stream may end without `[DONE]` once it gave its finish reason: then nothing is missing.
    complete = len(events) - 3 if pair is CHAT else len(events) - 1
    for count in range(complete + 1):
        deltas: list[Delta] = []
        with pytest.raises(ProviderError) as failed:
            pair.read(events[:count], deltas.append)
        assert failed.value.kind == "connection"
        assert failed.value.retryable
    assert pair.read(events[: complete + 1] if pair is CHAT else events).finish == "tool_calls"


@each_dialect
def test_a_stream_may_be_split_at_any_byte(pair: Pair) -> None:
    stream = b"".join(pair.stream(BUSY))
    whole = neutral(pair.read([stream]).items)
    for at in range(1, len(stream)):
        parser = SseParser()
        reading = pair.reading()
        for event in (*parser.feed(stream[:at]), *parser.feed(stream[at:])):
            reading.event(event.data)
        assert neutral(reading.response().items) == whole


@each_dialect
@pytest.mark.parametrize("finish", ["length", "content_filter", "refusal"])
def test_calls_of_an_answer_that_did_not_end_on_its_own_are_dropped(pair: Pair, finish: str) -> None:
    answer = pair.read(pair.stream(Reply(text="No", calls=(ScriptedCall("clock"),), finish=finish)))

    assert neutral(answer.items) == [("text", "No")]
    expected = "refusal" if pair is ANTHROPIC and finish == "content_filter" else finish
    assert answer.finish == expected


@each_dialect
def test_an_error_inside_the_stream_is_an_error(pair: Pair) -> None:
    reply = Reply(text="one two", error_code="overloaded_error", error_message="too much to do")
    events = [*pair.stream(reply)[:3], pair.server.stream_error(reply)]

    with pytest.raises(ProviderError, match="too much to do") as failed:
        pair.read(events)
    assert failed.value.kind == "server"
    assert failed.value.retryable


@each_dialect
def test_one_call_id_used_twice_becomes_two(pair: Pair) -> None:
    events = [
        e.replace(f"call_{NUMBER.decode()}_1".encode(), f"call_{NUMBER.decode()}_0".encode())
        for e in pair.stream(BUSY)
    ]
    calls = [i for i in pair.read(events).items if isinstance(i, ToolCall)]

    assert [c.name for c in calls] == ["divide", "clock"]
    assert calls[0].call_id != calls[1].call_id


def chat(*chunks: dict[str, Any], done: bool = True) -> list[bytes]:
    events = [b"data: " + json.dumps(c).encode() + b"\n\n" for c in chunks]
    return [*events, b"data: [DONE]\n\n"] if done else events


def choice(delta: dict[str, Any], finish: str | None = None, index: int = 0) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def function(name: str = "", arguments: str = "", **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{**more, "function": {"name": name, "arguments": arguments}}]}


def test_chat_calls_without_an_index_are_told_apart_by_id() -> None:
    answer = CHAT.read(
        chat(
            choice(function("a", '{"x"', id="one")),
            choice(function("b", '{"y"', id="two")),
            choice(function("", ":1}", id="one")),
            choice(function("", ":2}", id="two"), "tool_calls"),
        )
    )
    assert neutral(answer.items) == [("call", "one", "a", '{"x":1}'), ("call", "two", "b", '{"y":2}')]


def test_another_id_at_a_used_index_is_another_chat_call() -> None:
    answer = CHAT.read(
        chat(
            choice(function("a", "{}", id="one", index=0)),
            choice(function("b", "{}", id="two", index=0), "tool_calls"),
        )
    )
    assert neutral(answer.items) == [("call", "one", "a", "{}"), ("call", "two", "b", "{}")]


def test_text_and_calls_in_several_choices_are_one_chat_answer() -> None:
    answer = CHAT.read(
        chat(choice({"content": "Look: "}), choice(function("a", "{}", id="one"), "tool_calls", index=1))
    )
    assert neutral(answer.items) == [("text", "Look: "), ("call", "one", "a", "{}")]


def test_a_chat_stream_that_is_done_without_a_reason_counts_if_its_calls_are_whole() -> None:
    assert CHAT.read(chat(choice({"content": "Hi"}))).finish == "stop"
    with pytest.raises(ProviderError):
        CHAT.read(chat(choice(function("a", '{"x', id="one"))))


def test_a_chat_stream_without_any_choice_is_a_failure_of_the_server() -> None:
    with pytest.raises(ProviderError) as failed:
        CHAT.read(chat({"choices": []}))
    assert failed.value.kind == "server"


def test_chat_content_may_come_in_blocks() -> None:
    blocks = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": "Yes."},
    ]
    answer = CHAT.read(chat(choice({"content": blocks}, "stop")))
    assert neutral(answer.items) == [("reasoning", ("Hm.",)), ("text", "Yes.")]


def test_what_a_chat_provider_adds_to_a_call_goes_back_to_it_and_to_nobody_else() -> None:
    extra = {"google": {"thought_signature": "abc"}}
    answer = CHAT.read(
        chat(choice(function("a", "{}", id="one", index=0, extra_content=extra), "tool_calls"))
    )
    messages = (user("hi"), assistant(*answer.items), user(result("one")))
    assert b"thought_signature" in CHAT.encode(request(*messages))
    assert b"thought_signature" not in CHAT.encode(request(*messages), of=endpoint("other"))
    assert b"thought_signature" not in CHAT.encode(request(*messages, model="another"))


def test_a_chat_provider_that_wants_its_thinking_back_gets_it() -> None:
    wanting = endpoint(quirks=Quirks(replay_reasoning=True))
    reading = CHAT.dialect.read(request(), wanting, lambda _: None)
    for event in SseParser().feed(b"".join(CHAT.stream(Reply(reasoning="Hm.", text="Yes.")))):
        reading.event(event.data)
    messages = (user("hi"), assistant(*reading.response().items), user("more"))
    assert b'"reasoning_content":"Hm."' in CHAT.encode(request(*messages), of=wanting)


def test_thinking_between_tags_is_no_text() -> None:
    pieces = ["<thi", "nk>Hm", "m.</think", ">\nYes ", "<b>"]
    answer = CHAT.read(chat(*(choice({"content": p}) for p in pieces), choice({}, "stop")))
    assert neutral(answer.items) == [("reasoning", ("Hmm.",)), ("text", "\nYes <b>")]


def responses(*events: dict[str, Any]) -> list[bytes]:
    return [b"data: " + json.dumps(e).encode() + b"\n\n" for e in events]


def test_a_completed_response_may_leave_its_output_out() -> None:
    item = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
    answer = RESPONSES.read(
        responses(
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"status": "completed", "output": None}},
        )
    )
    assert neutral(answer.items) == [("text", "Hi")]


def test_a_failed_response_is_an_error() -> None:
    said = {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow down"}}
    with pytest.raises(ProviderError) as failed:
        RESPONSES.read(responses({"type": "response.failed", "response": said}))
    assert failed.value.kind == "rate_limit"


def test_interleaved_response_items_stay_apart() -> None:
    def argument(index: int, text: str) -> dict[str, Any]:
        return {"type": "response.function_call_arguments.delta", "output_index": index, "delta": text}

    def opened(index: int) -> dict[str, Any]:
        item = {"type": "function_call", "call_id": f"c{index}", "name": "f"}
        return {"type": "response.output_item.added", "output_index": index, "item": item}

    completed = {"type": "response.completed", "response": {"status": "completed"}}
    events = (opened(0), opened(1), argument(0, "{"), argument(1, "{ "), argument(0, "}"), argument(1, "}"))
    answer = RESPONSES.read(responses(*events, completed))
    assert neutral(answer.items) == [("call", "c0", "f", "{}"), ("call", "c1", "f", "{ }")]


def test_what_a_response_reasoned_goes_back_whole_with_the_id_of_its_call() -> None:
    answer = RESPONSES.read(RESPONSES.stream(BUSY))
    call_id = f"call_{NUMBER.decode()}_0"
    other = f"call_{NUMBER.decode()}_1"
    messages = (user("hi"), assistant(*answer.items), user(result(call_id), result(other)))
    sent = json.loads(RESPONSES.encode(request(*messages)))["input"]

    assert [i["type"] for i in sent] == [
        "message",
        "reasoning",
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]
    assert sent[1]["encrypted_content"].startswith("sealed-")
    assert sent[3]["id"].startswith("fc_")
    elsewhere = json.loads(RESPONSES.encode(request(*messages), of=endpoint("other")))["input"]
    assert "reasoning" not in [i["type"] for i in elsewhere]
    assert "id" not in elsewhere[2]


def test_redacted_thinking_goes_back_in_its_place() -> None:
    events = [
        {"type": "message_start", "message": {"model": "m"}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "redacted_thinking", "data": "x"},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Yes"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    answer = ANTHROPIC.read([b"data: " + json.dumps(e).encode() + b"\n\n" for e in events])
    sent = json.loads(ANTHROPIC.encode(request(user("hi"), assistant(*answer.items), user("go on"))))
    assert sent["messages"][1]["content"] == [
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "Yes"},
    ]


def test_a_full_context_window_is_told_apart_from_a_full_answer() -> None:
    def ended(text: str) -> list[bytes]:
        stream = ANTHROPIC.stream(Reply(text=text))
        return [e.replace(b'"end_turn"', b'"model_context_window_exceeded"') for e in stream]

    assert ANTHROPIC.read(ended("some text")).finish == "length"
    with pytest.raises(ProviderError) as failed:
        ANTHROPIC.read(ended(""))
    assert failed.value.kind == "context_length"


@each_dialect
def test_an_unreadable_event_is_told_apart_from_a_failure(pair: Pair) -> None:
    with pytest.raises(msgspec.DecodeError):
        pair.reading().event(b"{nonsense")
