"""What clients see of a conversation: messages and turn events as the JSON of the chat API.

Live items are told apart by two flags. `partial`: the item holds only what is new, append it. `hasMore`: the
item is not finished. An item without `partial` replaces what the client has under its id, except that a tool
item keeps its `output` once it has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, assert_never

import msgspec

from nanobot.agent.events import (
    Body,
    Condensed,
    Delta,
    Event,
    MessageAdded,
    Retrying,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from nanobot.llm.messages import JsonObject, Message, ToolCall, ToolOutput, item_json, output_json
from nanobot.llm.model import ArgumentsDelta, ReasoningDelta, TextDelta, Usage
from nanobot.sse import format_event

_encode = msgspec.json.Encoder().encode

FAILED_TURN: Final = -32603
"""JSON-RPC code of the `error` event: the turn failed for a reason that its message tells."""


def history_json(messages: Iterable[Message]) -> list[JsonObject]:
    """Messages for display: each tool result stands in the item of its call, messages left empty are gone."""
    shown: list[JsonObject] = []
    calls: dict[str, JsonObject] = {}
    for message in messages:
        items: list[JsonObject] = []
        for item in message.items:
            if isinstance(item, ToolOutput) and item.call_id in calls:
                calls.pop(item.call_id)["output"] = output_json(item)
                continue
            body = item_json(item)
            if isinstance(item, ToolCall):
                calls[item.call_id] = body
            items.append(body)
        if items:
            shown.append({**message.json(), "items": items})
    return shown


def usage_json(usage: Usage) -> JsonObject:
    """Token counts; a count is null when the provider did not tell it."""
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
        "cacheReadTokens": usage.cache_read_tokens,
        "cacheWriteTokens": usage.cache_write_tokens,
        "reasoningTokens": usage.reasoning_tokens,
        "requests": usage.requests,
        "source": usage.source,
    }


def sse(value: Any, *, event: str | None = None, id: str | None = None) -> bytes:
    """`value` as the data of one server-sent event."""
    return format_event(_encode(value), event=event, id=id)


def body_sse(body: Body, id: str | None = None) -> bytes:
    """`body` as server-sent events; b"" for what clients have seen already. `id` goes to the last of them."""
    match body:
        case Delta():
            return sse(_delta_json(body), id=id)
        case TurnStarted():
            user = sse(body.message.json())
            return user + sse({"turn": body.turn_id, "agent": body.agent}, event="chat-in-progress", id=id)
        case ToolStarted():
            item = {**item_json(body.call), "hasMore": True}
            return sse(_unfinished(body.message_id, item), id=id)
        case ToolProgress():
            news = {"callID": body.call_id, "progress": body.progress}
            if body.total is not None:
                news["total"] = body.total
            if body.message:
                news["message"] = body.message
            return sse(news, event="notifications/progress", id=id)
        case ToolFinished():
            item = {**item_json(body.call), "output": output_json(body.output), "ms": body.ms}
            return sse(_unfinished(body.message_id, item), id=id)
        case MessageAdded(message):
            return _added_sse(message, id)
        case Retrying(status):
            news = {
                "state": status.state,
                "attempt": status.attempt,
                "reason": status.kind,
                "waitMs": round(status.wait_s * 1000),
            }
            return sse(news, event="chat-retry", id=id)
        case Condensed(before, after, is_summarised):
            news = {"before": before, "after": after, "summarised": is_summarised}
            return sse(news, event="chat-condensed", id=id)
        case TurnEnded():
            return _ended_sse(body, id)
        case _:
            assert_never(body)


def backlog_sse(backlog: Sequence[Event], already_sent: Iterable[str] = ()) -> bytes:
    """A running turn up to now, told so that it may be told twice: items being written are sent whole.

    Messages whose ids are in `already_sent` are left out.
    """
    known = set(already_sent)
    complete = {e.body.message.id for e in backlog if isinstance(e.body, MessageAdded)}
    unfinished: dict[tuple[str, str], Delta] = {}
    told: list[bytes] = []
    for event in backlog:
        body = event.body
        if isinstance(body, Delta):
            if body.message_id not in complete:
                _accumulate(unfinished, body)
        elif isinstance(body, TurnStarted) and body.message.id in known:
            told.append(sse({"turn": body.turn_id, "agent": body.agent}, event="chat-in-progress"))
        elif not (isinstance(body, MessageAdded) and body.message.id in known):
            told.append(body_sse(body))
    told += (sse(_delta_json(delta, partial=False)) for delta in unfinished.values())
    return b"".join(told)


def _accumulate(whole: dict[tuple[str, str], Delta], piece: Delta) -> None:
    key = (piece.message_id, piece.delta.item_id)
    before = whole.get(key)
    if before is None:
        whole[key] = piece
    else:
        delta = msgspec.structs.replace(piece.delta, text=before.delta.text + piece.delta.text)
        whole[key] = Delta(piece.message_id, delta)


def _unfinished(message_id: str, item: JsonObject) -> JsonObject:
    return {"id": message_id, "role": "assistant", "hasMore": True, "items": [item]}


def _delta_json(body: Delta, *, partial: bool = True) -> JsonObject:
    delta = body.delta
    item: JsonObject = {"id": delta.item_id, "hasMore": True, "partial": partial}
    match delta:
        case TextDelta():
            item |= {"type": "text", "text": delta.text}
        case ReasoningDelta():
            item |= {"type": "reasoning", "summary": [{"text": delta.text}]}
        case ArgumentsDelta():
            item |= {"type": "tool", "name": delta.name, "callID": delta.call_id, "arguments": delta.text}
    return _unfinished(body.message_id, item)


def _added_sse(message: Message, id: str | None) -> bytes:
    if message.role == "assistant":
        return sse(message.json(), id=id)
    # Results were sent with `ToolFinished`, inside the items of their calls.
    rest = tuple(item for item in message.items if not isinstance(item, ToolOutput))
    return sse(replace(message, items=rest).json(), id=id) if rest else b""


def _ended_sse(body: TurnEnded, id: str | None) -> bytes:
    done: JsonObject = {"turn": body.turn_id, "stop": body.stop, "usage": usage_json(body.usage)}
    if body.model:
        done["model"] = body.model
    failure = b""
    if body.error:
        done["error"] = body.error
    if body.stop == "error":
        failure = sse({"code": FAILED_TURN, "message": body.error}, event="error")
    return failure + sse(done, event="chat-done", id=id)
