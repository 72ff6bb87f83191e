"""The three dialects beside the server side of each, and the pieces of a conversation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nanobot.llm.anthropic import AnthropicMessages
from nanobot.llm.chat_completions import ChatCompletions
from nanobot.llm.dialect import Dialect, Reading
from nanobot.llm.endpoint import Adaptations, Endpoint
from nanobot.llm.messages import Item, Message, Reasoning, Text, ToolCall, ToolOutput
from nanobot.llm.model import Delta, ModelRequest, ModelResponse, ToolSet, ToolSpec
from nanobot.llm.responses import Responses
from nanobot.sse import SseParser
from nanobot.testing import model_dialects
from nanobot.testing.model_reply import Reply

NUMBER = b"0000002a"


@dataclass(frozen=True)
class Pair:
    """A dialect and its counterpart of the scripted server."""

    name: str
    dialect: Dialect
    server: model_dialects.Dialect

    def __str__(self) -> str:
        return self.name

    def stream(self, reply: Reply) -> list[bytes]:
        return [e.replace(model_dialects.ID, NUMBER) for e in self.server.stream(reply)]

    def reading(self, emit: Callable[[Delta], None] = lambda _: None) -> Reading:
        return self.dialect.read(request(), endpoint(), emit)

    def read(self, events: Sequence[bytes], emit: Callable[[Delta], None] = lambda _: None) -> ModelResponse:
        reading = self.reading(emit)
        for event in SseParser().feed(b"".join(events)):
            if not event.comment:
                reading.event(event.data)
        return reading.response()

    def encode(self, asked: ModelRequest, *, of: Endpoint | None = None) -> bytes:
        """The request body for endpoint `of`."""
        return self.dialect.encode(asked, of or endpoint(), Adaptations())


CHAT = Pair("chat", ChatCompletions(), model_dialects.CHAT)
ANTHROPIC = Pair("anthropic", AnthropicMessages(), model_dialects.ANTHROPIC)


RESPONSES = Pair("responses", Responses(), model_dialects.RESPONSES)
ALL = (CHAT, RESPONSES, ANTHROPIC)

TOOLS = ToolSet(
    (
        ToolSpec("divide", "Divide a by b.", {"type": "object", "properties": {"a": {"type": "number"}}}),
        ToolSpec("clock", "", {"type": "object", "properties": {}}),
    )
)


def endpoint(provider: str = "acme", base_url: str = "https://acme.test/v1", **more: Any) -> Endpoint:
    return Endpoint(provider=provider, base_url=base_url, api_key="secret-key", **more)


def request(*messages: Message, **more: Any) -> ModelRequest:
    return ModelRequest(model=more.pop("model", "m"), messages=messages or (user("hello"),), **more)


def user(*items: Item | str) -> Message:
    return Message("", "user", tuple(Text("", i) if isinstance(i, str) else i for i in items))


def assistant(*items: Item | str) -> Message:
    return Message("", "assistant", tuple(Text("", i) if isinstance(i, str) else i for i in items))


def call(id: str, name: str = "divide", arguments: str = '{"a": 1}') -> ToolCall:
    return ToolCall("", id, name, arguments)


def result(id: str, text: str = "42", *, is_error: bool = False) -> ToolOutput:
    return ToolOutput("", id, [{"type": "text", "text": text}], is_error)


def neutral(items: Sequence[Item]) -> list[Any]:
    """What is left of items when ids and provider data are put aside."""
    left: list[Any] = []
    for item in items:
        match item:
            case Text():
                left.append(("text", item.text))
            case ToolCall():
                left.append(("call", item.call_id, item.name, item.arguments))
            case Reasoning():
                left.append(("reasoning", tuple(item.summary)))
            case _:
                left.append(item)
    return left


def said(answer: ModelResponse) -> str:
    """The text of an answer."""
    return "".join(item.text for item in answer.items if isinstance(item, Text))
