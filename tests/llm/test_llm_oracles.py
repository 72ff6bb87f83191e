"""The vendors' own libraries as judges: they read what our server sends and accept what we send."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import ConfigDict, TypeAdapter, with_config
from tests.llm.dialects import ANTHROPIC, CHAT, RESPONSES, TOOLS, Pair, assistant, call, request, result, user

from nanobot.llm.messages import Content
from nanobot.llm.model import OutputFormat
from nanobot.testing.model_server import ModelServer, Reply, ScriptedCall, model_server

pytestmark = pytest.mark.anyio

REPLY = Reply(
    text="Let me see.", reasoning="Hm.", calls=(ScriptedCall("divide", {"a": 1}), ScriptedCall("clock"))
)
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="


@pytest.fixture
async def server() -> AsyncGenerator[ModelServer]:
    async with model_server(REPLY) as running:
        yield running


async def test_openai_reads_our_chat_completions(server: ModelServer) -> None:
    async with openai.AsyncOpenAI(base_url=server.url, api_key="k") as client:
        messages = [{"role": "user", "content": "hi"}]
        plain = await client.chat.completions.create(model="m", messages=messages)  # pyright: ignore
        async with client.chat.completions.stream(model="m", messages=messages) as stream:  # pyright: ignore
            streamed = await stream.get_final_completion()
        models = await client.models.list()

    assert [m.id for m in models.data] == ["scripted-model"]
    for answer in (plain, streamed):
        message = answer.choices[0].message
        assert message.content == "Let me see."
        assert answer.choices[0].finish_reason == "tool_calls"
        assert [(c.function.name, c.function.arguments) for c in message.tool_calls or ()] == [  # pyright: ignore
            ("divide", '{"a": 1}'),
            ("clock", "{}"),
        ]


async def test_openai_reads_our_responses(server: ModelServer) -> None:
    async with openai.AsyncOpenAI(base_url=server.url, api_key="k") as client:
        plain = await client.responses.create(model="m", input="hi")
        async with client.responses.stream(model="m", input="hi") as stream:
            kinds = {event.type async for event in stream}
            streamed = await stream.get_final_response()

    assert "response.output_text.delta" in kinds
    for answer in (plain, streamed):
        assert answer.output_text == "Let me see."
        assert [i.type for i in answer.output] == ["reasoning", "message", "function_call", "function_call"]
        assert answer.usage
        assert answer.usage.total_tokens == 12


async def test_anthropic_reads_our_messages(server: ModelServer) -> None:
    base = server.url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=base, api_key="k") as client:
        messages = [{"role": "user", "content": "hi"}]
        plain = await client.messages.create(model="m", max_tokens=9, messages=messages)  # pyright: ignore
        async with client.messages.stream(model="m", max_tokens=9, messages=messages) as stream:  # pyright: ignore
            streamed = await stream.get_final_message()

    for answer in (plain, streamed):
        assert [b.type for b in answer.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert answer.content[2].input == {"a": 1}  # pyright: ignore
        assert answer.stop_reason == "tool_use"
        assert answer.usage.output_tokens == 5


@pytest.mark.parametrize(
    ("status", "code"), [(429, ""), (401, "invalid_api_key"), (500, ""), (400, "context_length_exceeded")]
)
async def test_the_libraries_understand_our_errors(server: ModelServer, status: int, code: str) -> None:
    failing = Reply(status=status, error_code=code, error_message="scripted")
    server.queue(failing, failing)
    async with openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
        with pytest.raises(openai.APIStatusError, match="scripted") as failed:
            await client.responses.create(model="m", input="hi")
        assert failed.value.status_code == status
    base = server.url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=base, api_key="k", max_retries=0) as client:
        with pytest.raises(anthropic.APIStatusError, match="scripted") as refused:
            await client.messages.create(
                model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
            )
        assert refused.value.status_code == status


FULL = request(
    user("Hello", Content("", {"type": "image", "mimeType": "image/png", "data": PNG})),
    assistant("Let me see.", call("call_1"), call("call_2", "clock", "")),
    user(result("call_1", "no", is_error=True), result("call_2")),
    instructions="Be kind.",
    tools=TOOLS,
    tool_choice="divide",
    output=OutputFormat(name="shape", schema={"type": "object"}, description="d", strict=True),
    max_tokens=500,
    effort="low",
    thread="t",
)


JUDGES = [
    (CHAT, CompletionCreateParamsStreaming),
    (RESPONSES, ResponseCreateParamsStreaming),
    (ANTHROPIC, MessageCreateParamsStreaming),
]


@pytest.mark.parametrize(("pair", "judge"), JUDGES, ids=[str(pair) for pair, _ in JUDGES])
def test_the_request_types_of_the_libraries_accept_what_we_send(pair: Pair, judge: Any) -> None:
    body = json.loads(pair.encode(FULL))
    for item in body.get("input", ()):
        if item.get("role") == "assistant":  # the type asks for what only a storing server can know
            item |= {"id": "msg_1", "status": "completed"}
            item["content"] = [{**part, "annotations": []} for part in item["content"]]
    TypeAdapter(with_config(ConfigDict(extra="forbid"))(judge)).validate_python(body)
