"""Model requests and answers as JSON, for hooks, and what hooks made of them back again.

What a hook left alone stays the very object it was, with its encoded form and what the provider wants back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from nanobot.agent.model_history import ModelHistory
from nanobot.errors import NanobotError
from nanobot.ids import new_id
from nanobot.llm.messages import Item, Message, ToolCall, item_json, message_from_json
from nanobot.llm.model import FinishReason, ModelRequest, ModelResponse, ToolSet, ToolSpec, Usage

FIXED: Final = ("model", "agent", "thread", "output")
"""Members of a request that a hook sees and cannot change."""


class BadHookAnswer(NanobotError):
    """A hook answered with a request or response that cannot be one. The message says what is wrong."""

    code = "hook.bad_answer"


class _Tool(msgspec.Struct, rename="camel"):
    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}


class _Reasoning(msgspec.Struct, frozen=True):
    effort: str | None = None
    summary: str | None = None


class _Request(msgspec.Struct, rename="camel"):
    messages: list[dict[str, Any]]
    instructions: str = ""
    tools: list[_Tool] = []
    tool_choice: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: list[str] = []
    reasoning: _Reasoning = _Reasoning()
    truncation: str | None = None


class _Response(msgspec.Struct):
    items: list[dict[str, Any]]
    id: str = ""
    model: str = ""
    finish: FinishReason | None = None


def request_json(request: ModelRequest, *, model: str, agent: str) -> dict[str, Any]:
    """`request` as hooks see it; `model` with its provider. A value of its own, nothing is shared."""
    shown: dict[str, Any] = {
        "model": model,
        "agent": agent,
        "thread": request.thread,
        "instructions": request.instructions,
        "messages": [message.json() for message in request.messages],
        "tools": [
            {"name": tool.name, "description": tool.description, "inputSchema": tool.schema}
            for tool in request.tools.tools
        ],
        "toolChoice": request.tool_choice,
        "temperature": request.temperature,
        "topP": request.top_p,
        "maxTokens": request.max_tokens,
        "stop": list(request.stop),
        "reasoning": {"effort": request.effort, "summary": request.reasoning_summary},
        "truncation": request.truncation,
        "output": request.output.schema if request.output else None,
    }
    return msgspec.json.decode(msgspec.json.encode(shown))


def changed_request(request: ModelRequest, shown: Mapping[str, Any], after: Any) -> ModelRequest:
    """`request` as `after` wants it; it was shown as `shown`. Raises `BadHookAnswer`."""
    asked = _read(after, _Request, "request")
    for member in FIXED:
        if after.get(member) != shown[member]:
            raise BadHookAnswer(
                f"A `request` hook cannot change {member!r}; a `config` hook may change the agent."
            )
    changes: dict[str, Any] = {}
    if after.get("messages") != shown["messages"]:
        changes |= {"messages": _messages(request.messages, asked.messages), "beginnings": {}}
    if after.get("tools") != shown["tools"]:
        changes["tools"] = _tools(request.tools, asked.tools)
    return replace(
        request,
        instructions=asked.instructions,
        tool_choice=asked.tool_choice,
        temperature=asked.temperature,
        top_p=asked.top_p,
        max_tokens=asked.max_tokens,
        stop=asked.stop,
        effort=asked.reasoning.effort,
        reasoning_summary=asked.reasoning.summary,
        truncation=asked.truncation,
        **changes,
    )


def response_json(response: ModelResponse) -> dict[str, Any]:
    """`response` as hooks see it."""
    shown = {
        "id": response.id,
        "model": response.model,
        "items": [item_json(item) for item in response.items],
        "finish": response.finish,
    }
    return msgspec.json.decode(msgspec.json.encode(shown))


def new_response(given: Any, model: str) -> ModelResponse:
    """An answer that stands for the model's. Raises `BadHookAnswer`."""
    answer = _read(given, _Response, "response")
    items = _items(answer.items, {})
    return ModelResponse(
        id=answer.id or new_id("hook"),
        model=answer.model or model,
        items=items,
        finish=answer.finish or _finish(items),
        usage=Usage(requests=0),
    )


def changed_response(response: ModelResponse, shown: Mapping[str, Any], after: Any) -> ModelResponse:
    """`response` as `after` wants it; it was shown as `shown`. Raises `BadHookAnswer`."""
    answer = _read(after, _Response, "response")
    same = dict(zip((_text(one) for one in shown["items"]), response.items, strict=True))
    items = _items(answer.items, same)
    finish = answer.finish or _finish(items)
    if finish in ("stop", "tool_calls"):  # what the calls say counts, a hook may have taken them away
        finish = _finish(items)
    return replace(response, items=items, finish=finish)


def _read(value: Any, kind: type[Any], name: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as e:
        raise BadHookAnswer(f"A hook answered with a {name} that is not valid: {e}.") from e


def _messages(before: Sequence[Message], after: Sequence[dict[str, Any]]) -> list[Message]:
    """The messages of `after`, mended where a provider would refuse them."""
    same = {_text(message.json()): message for message in before}
    history = ModelHistory()
    for body in after:
        if body.get("role") not in ("user", "assistant"):
            raise BadHookAnswer("A hook answered with a message whose role is neither user nor assistant.")
        history.add(same.get(_text(body)) or _with_ids(message_from_json(body)))
    history.close()
    return history.messages


def _with_ids(message: Message) -> Message:
    items = tuple(item if item.id else replace(item, id=new_id("item")) for item in message.items)
    return replace(message, id=message.id or new_id("msg"), items=items)


def _tools(before: ToolSet, after: Sequence[_Tool]) -> ToolSet:
    extensions = {tool.name: tool.extensions for tool in before.tools}
    return ToolSet(
        tuple(
            ToolSpec(tool.name, tool.description, tool.input_schema, extensions.get(tool.name, {}))
            for tool in after
        )
    )


def _items(after: Sequence[dict[str, Any]], same: Mapping[bytes, Item]) -> tuple[Item, ...]:
    items: list[Item] = []
    for body in after:
        known = same.get(_text(body))
        if known is not None:
            items.append(known)
            continue
        for item in message_from_json({"items": [body]}).items:
            item = item if item.id else replace(item, id=new_id("item"))
            if isinstance(item, ToolCall) and not item.call_id:
                item = replace(item, call_id=new_id("call"))
            items.append(item)
    return tuple(items)


def _finish(items: Sequence[Item]) -> FinishReason:
    return "tool_calls" if any(isinstance(item, ToolCall) for item in items) else "stop"


def _text(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")
