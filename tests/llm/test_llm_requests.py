"""What is sent: the same bytes for the same conversation, and nothing a provider would refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.llm.dialects import (
    ALL,
    ANTHROPIC,
    CHAT,
    RESPONSES,
    TOOLS,
    Pair,
    assistant,
    call,
    endpoint,
    request,
    result,
    user,
)

from nanobot.llm.endpoint import Adaptations, Quirks
from nanobot.llm.messages import Content, Message, ToolOutput
from nanobot.llm.model import OutputFormat, ToolSet, ToolSpec

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
each_dialect = pytest.mark.parametrize("pair", ALL, ids=str)


def sent(pair: Pair, *messages: Message, **more: Any) -> dict[str, Any]:
    return json.loads(pair.encode(request(*messages, **more)))


CONVERSATION = (
    user(
        "What is 1/0 and what time is it?",
        Content("", {"type": "image", "mimeType": "image/gif", "data": PNG}),
    ),
    assistant("Let me see.", call("call_1", "divide", '{"a": 1}'), call("call_2", "clock", "")),
    user(result("call_1", "division by zero", is_error=True), result("call_2", "noon")),
    assistant("It is noon."),
    user("Thanks"),
)


@each_dialect
def test_arguments_too_deep_to_decode_do_not_stop_the_conversation(pair: Pair) -> None:
    deep = '{"a": ' + "[" * 5000 + "]" * 5000 + "}"
    body = sent(pair, user("x"), assistant(call("c", "divide", deep)), user(result("c", "refused")))
    assert "[[[" not in json.dumps(body)


def test_a_conversation_as_chat_messages() -> None:
    body = sent(CHAT, *CONVERSATION, instructions="Be kind.", tools=TOOLS, tool_choice="required")

    assert body["messages"] == [
        {"role": "system", "content": "Be kind."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is 1/0 and what time is it?"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "auto"}},
            ],
        },
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "divide", "arguments": '{"a": 1}'}},
                {"id": "call_2", "type": "function", "function": {"name": "clock", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "Error: division by zero"},
        {"role": "tool", "tool_call_id": "call_2", "content": "noon"},
        {"role": "assistant", "content": "It is noon."},
        {"role": "user", "content": "Thanks"},
    ]
    assert body["tools"][0]["function"]["name"] == "divide"
    assert body["tool_choice"] == "required"
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


def test_a_conversation_as_response_items() -> None:
    body = sent(RESPONSES, *CONVERSATION, instructions="Be kind.", tools=TOOLS, tool_choice="clock")

    assert body["instructions"] == "Be kind."
    assert body["store"] is False
    assert body["tool_choice"] == {"type": "function", "name": "clock"}
    assert body["input"] == [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is 1/0 and what time is it?"},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
            ],
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Let me see."}],
        },
        {"type": "function_call", "call_id": "call_1", "name": "divide", "arguments": '{"a": 1}'},
        {"type": "function_call", "call_id": "call_2", "name": "clock", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "Error: division by zero"},
        {"type": "function_call_output", "call_id": "call_2", "output": "noon"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "It is noon."}],
        },
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Thanks"}]},
    ]


def test_a_conversation_as_anthropic_messages() -> None:
    body = sent(ANTHROPIC, *CONVERSATION, instructions="Be kind.", tools=TOOLS, tool_choice="required")

    assert body["system"] == [{"type": "text", "text": "Be kind."}]
    assert body["tool_choice"] == {"type": "any"}
    assert body["max_tokens"] > 0
    assert body["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is 1/0 and what time is it?"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "call_1", "name": "divide", "input": {"a": 1}},
                {"type": "tool_use", "id": "call_2", "name": "clock", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "call_1",
                    "content": [{"type": "text", "text": "division by zero"}],
                    "is_error": True,
                },
                {
                    "type": "tool_result",
                    "tool_use_id": "call_2",
                    "content": [{"type": "text", "text": "noon"}],
                },
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "It is noon."}]},
        {"role": "user", "content": [{"type": "text", "text": "Thanks"}]},
    ]


@each_dialect
def test_an_unchanged_conversation_is_the_same_bytes(pair: Pair) -> None:
    asked = request(*CONVERSATION, instructions="Be kind.", tools=TOOLS)
    first = pair.encode(asked)
    longer = pair.encode(request(*CONVERSATION, assistant("Bye."), user("Bye"), instructions="Be kind."))

    assert pair.encode(asked) == first
    opening = first[first.index(b"What is 1/0") : first.index(b"Thanks")]
    assert opening in longer


@each_dialect
def test_a_message_is_written_once(pair: Pair) -> None:
    messages = [user("hello")]
    pair.encode(request(*messages))
    for key, form in messages[0].forms.items():
        messages[0].forms[key] = form.replace(b"hello", b"kept!")
    assert b"kept!" in pair.encode(request(*messages))


@each_dialect
def test_a_repeated_call_id_is_made_unique_and_its_result_follows(pair: Pair) -> None:
    messages = (
        user("go"),
        assistant(call("call_0")),
        user(result("call_0", "first")),
        assistant(call("call_0")),
        user(result("call_0", "second")),
    )
    body = pair.encode(request(*messages)).decode()

    assert body.count('"call_0"') == 2
    assert body.count('"call_0_2"') == 2
    assert body.index("call_0_2") > body.index("first")


@each_dialect
def test_a_strange_call_id_is_made_acceptable_the_same_on_both_sides(pair: Pair) -> None:
    body = pair.encode(request(user("go"), assistant(call("functions.a:0")), user(result("functions.a:0"))))
    assert b"functions.a:0" not in body
    assert body.count(b"functions_a_0_") == 2


@each_dialect
def test_the_last_word_is_the_users(pair: Pair) -> None:
    prefilled = pair.encode(request(user("go"), assistant("Sure, here is")))
    assert b"Sure" not in prefilled
    alone = json.loads(pair.encode(request(assistant("only this"))))
    newest = (alone.get("messages") or alone.get("input"))[-1]
    assert newest["role"] == "user"
    assert "only this" in json.dumps(newest)


@each_dialect
def test_a_conversation_begins_with_the_user(pair: Pair) -> None:
    body = pair.encode(request(assistant("Welcome"), user("hi")))
    assert b"(conversation continued)" in body


@each_dialect
def test_empty_messages_and_broken_text_are_repaired(pair: Pair) -> None:
    body = pair.encode(request(user("  "), assistant(" \n"), user("a\ud800b\0c", result("x", "\udfff"))))
    decoded = json.dumps(json.loads(body))
    assert decoded.count("(empty)") >= 2
    assert "a\\ufffdbc" in decoded
    assert "\\u0000" not in decoded


@each_dialect
def test_lone_surrogates_in_a_tool_do_not_stop_a_request(pair: Pair) -> None:
    tools = ToolSet((ToolSpec("t", "bad \ud800", {"type": "object", "properties": {"\ud801": {}}}),))
    assert "�" in json.dumps(json.loads(pair.encode(request(tools=tools))), ensure_ascii=False)


@each_dialect
def test_arguments_that_are_no_object_are_replayed_as_an_empty_one(pair: Pair) -> None:
    body = pair.encode(request(user("go"), assistant(call("c", "divide", "[1")), user(result("c"))))
    assert b"[1" not in body.replace(b'"content":[', b"").replace(b"[{", b"")


@each_dialect
def test_tool_extensions_go_over_the_tool_and_can_remove_from_it(pair: Pair) -> None:
    extended = ToolSpec("t", "d", {"type": "object"}, {"cost": 3, "note": "", "remove": ["description"]})
    tool = sent(pair, tools=ToolSet((extended,)))["tools"][0]
    assert tool["cost"] == 3
    assert "note" not in tool
    assert "description" not in tool


@each_dialect
def test_no_tool_choice_without_tools(pair: Pair) -> None:
    assert "tool_choice" not in sent(pair, tool_choice="required")


@each_dialect
def test_an_image_becomes_a_note_for_a_model_that_cannot_see(pair: Pair) -> None:
    blind = Adaptations(refused={"images"})
    body = pair.dialect.encode(request(*CONVERSATION), endpoint(), blind)
    assert PNG.encode() not in body
    assert b"cannot see images" in body
    assert PNG.encode() in pair.encode(request(*CONVERSATION))


def test_an_image_in_a_result_reaches_a_chat_model_after_the_results() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": PNG}
    messages = (
        user("go"),
        assistant(call("a"), call("b")),
        user(ToolOutput("", "a", [image]), result("b")),
    )
    roles = [m["role"] for m in sent(CHAT, *messages)["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "user"]
    attached = sent(CHAT, *messages)["messages"][-1]["content"]
    assert "call a" in attached[0]["text"]
    assert attached[1]["type"] == "image_url"


def test_results_of_one_round_stay_together_over_several_messages() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": PNG}
    first = user(ToolOutput("", "a", [image]), "by the way")
    messages = (
        user("go"),
        assistant(call("a"), call("b")),
        first,
        user(result("b")),
        assistant("yes"),
        user("x"),
    )
    roles = [m["role"] for m in sent(CHAT, *messages)["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "user", "assistant", "user"]


def test_resources_are_shown_by_audience_and_type() -> None:
    def resource(body: dict[str, Any], **more: Any) -> Content:
        return Content("", {"type": "resource", "resource": {"uri": "file:///x/a.txt", **body}, **more})

    body = json.dumps(
        sent(
            CHAT,
            user(
                resource({"mimeType": "text/plain", "text": "shown text"}),
                resource({"mimeType": "text/plain", "text": "hidden"}, annotations={"audience": ["user"]}),
                resource({"mimeType": "application/json", "blob": "eyJhIjoxfQ=="}),
                resource({"mimeType": "application/zip", "blob": "AAAA"}),
                Content("", {"type": "resource_link", "name": "n", "uri": "http://x/", "mimeType": "a/b"}),
            ),
        )
    )
    assert "shown text" in body
    assert "hidden" not in body
    assert '{\\"a\\":1}' in body
    assert "[resource: a.txt file:///x/a.txt application/zip]" in body
    assert "[resource: n http://x/ a/b]" in body


def test_structured_output_in_every_dialect() -> None:
    output = OutputFormat(name="shape", schema={"type": "object"}, strict=True)
    assert sent(CHAT, output=output)["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert sent(RESPONSES, output=output)["text"]["format"]["name"] == "shape"
    assert sent(ANTHROPIC, output=output)["output_config"]["format"]["type"] == "json_schema"


@pytest.mark.parametrize(
    ("model", "field"),
    [("m", "max_tokens"), ("gpt-5-mini", "max_completion_tokens"), ("o3", "max_completion_tokens")],
)
def test_the_output_limit_has_the_name_the_model_wants(model: str, field: str) -> None:
    assert sent(CHAT, model=model, max_tokens=100)[field] == 100


@pytest.mark.parametrize("model", ["o3", "gpt-5", "openai/gpt-5.1"])
def test_reasoning_models_get_no_temperature(model: str) -> None:
    assert "temperature" not in sent(CHAT, model=model, temperature=0.3)
    assert "temperature" not in sent(RESPONSES, model=model, temperature=0.3)
    assert sent(RESPONSES, model=model)["include"] == ["reasoning.encrypted_content"]
    assert sent(CHAT, model="gpt-4.1", temperature=0.0)["temperature"] == 0.0


@pytest.mark.parametrize(
    ("model", "effort", "expected"),
    [
        ("claude-sonnet-4-5", "low", {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        ("claude-sonnet-4-5", "none", {}),
        ("claude-opus-4-7", "high", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        ("claude-sonnet-5", "none", {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-4-20250514", "medium", {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
    ],
)
def test_effort_becomes_thinking_as_the_claude_version_wants_it(
    model: str, effort: str, expected: dict[str, Any]
) -> None:
    body = sent(ANTHROPIC, model=model, effort=effort, temperature=0.5)
    assert {k: v for k, v in body.items() if k in ("thinking", "output_config")} == expected


def test_a_model_that_thinks_is_not_forced_and_gets_room_for_its_thoughts() -> None:
    body = sent(
        ANTHROPIC,
        model="claude-sonnet-4-5",
        effort="high",
        max_tokens=1000,
        tools=TOOLS,
        tool_choice="required",
        temperature=0.2,
    )
    assert body["tool_choice"] == {"type": "auto"}
    assert body["max_tokens"] == 8192 + 4096
    assert "temperature" not in body


def test_thinking_is_off_while_a_tool_loop_of_another_model_is_open() -> None:
    open_loop = (user("go"), assistant(call("c")), user(result("c")))
    body = sent(ANTHROPIC, *open_loop, model="claude-sonnet-4-5", effort="high")
    assert "thinking" not in body


def test_cache_marks_cover_the_newest_message_and_the_one_cached_before() -> None:
    caching = endpoint(quirks=Quirks(prompt_cache=True))
    long = "word " * 1000
    messages = (user(long), assistant("yes", call("c")), user(result("c")))
    asked = request(*messages, instructions=long, tools=TOOLS)
    body = json.loads(ANTHROPIC.encode(asked, of=caching))

    mark = {"type": "ephemeral"}
    assert body["tools"][-1]["cache_control"] == mark
    assert body["system"][-1]["cache_control"] == mark
    assert body["messages"][-1]["content"][-1]["cache_control"] == mark
    assert body["messages"][0]["content"][-1]["cache_control"] == mark
    assert json.dumps(body).count("cache_control") == 4
    assert b"cache_control" not in ANTHROPIC.encode(request(user("short")), of=caching)


def test_neighbouring_user_messages_are_one_anthropic_message_with_results_first() -> None:
    messages = (user("go"), assistant(call("c")), user("by the way"), user(result("c")))
    content = sent(ANTHROPIC, *messages)["messages"][-1]["content"]
    assert [b["type"] for b in content] == ["tool_result", "text"]


def test_a_provider_with_short_call_ids_gets_nine_characters() -> None:
    strict = endpoint(quirks=Quirks(short_call_ids=True))
    asked = request(user("go"), assistant(call("call_1")), user(result("call_1")))
    messages = json.loads(CHAT.encode(asked, of=strict))["messages"]
    assert len(messages[1]["tool_calls"][0]["id"]) == 9
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"]
