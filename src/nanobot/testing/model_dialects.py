"""The server side of three model dialects: what is read from a request, and how a reply is written.

`ID` stands in everything written here for the number of the answer, so that a whole answer can be encoded
once and sent many times with ids of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from nanobot.testing.model_reply import Reply

ID: Final = b"@@id--@@"
_ID: Final = ID.decode()
MODEL: Final = "scripted-model"
_CREATED: Final = 1_700_000_000
Json = dict[str, Any]


class Dialect(Protocol):
    """One wire format. Events are complete SSE events as bytes."""

    ping: bytes

    def newest(self, body: Json) -> tuple[str, int]:
        """The text of the newest message a person wrote, and how many rounds of calls followed it."""
        ...

    def document(self, reply: Reply) -> Json: ...

    def stream(self, reply: Reply) -> list[bytes]: ...

    def stream_error(self, reply: Reply) -> bytes: ...

    def error(self, reply: Reply) -> Json:
        """The body of an answer with an error status."""
        ...


class _Chat:
    ping = b": ping\n\n"

    def newest(self, body: Json) -> tuple[str, int]:
        messages: Sequence[Json] = body.get("messages") or ()
        rounds = 0
        for at in range(len(messages) - 1, -1, -1):
            message = messages[at]
            if message.get("role") == "assistant" and message.get("tool_calls"):
                rounds += 1
            elif message.get("role") == "user" and not (at and messages[at - 1].get("role") == "tool"):
                return _text(message.get("content")), rounds
        return "", rounds

    def document(self, reply: Reply) -> Json:
        message: Json = {"role": "assistant", "content": reply.text or None, "refusal": None}
        if reply.finish == "refusal":
            message |= {"content": None, "refusal": reply.text}
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if reply.calls:
            message["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for id, name, arguments in _calls(reply)
            ]
        choice: Json = {"index": 0, "message": message, "logprobs": None, "finish_reason": _chat_end(reply)}
        return {
            "id": f"chatcmpl-{_ID}",
            "object": "chat.completion",
            "created": _CREATED,
            "model": MODEL,
            "choices": [choice],
            "usage": _chat_usage(reply),
        }

    def stream(self, reply: Reply) -> list[bytes]:
        events = [_chat_chunk({"role": "assistant", "content": ""})]
        if reply.reasoning:
            events.append(_chat_chunk({"reasoning_content": reply.reasoning}))
        field = "refusal" if reply.finish == "refusal" else "content"
        events += [_chat_chunk({field: piece}) for piece in reply.pieces]
        for index, (id, name, arguments) in enumerate(_calls(reply)):
            function: Json = {"name": name, "arguments": ""}
            call: Json = {"index": index, "id": id, "type": "function", "function": function}
            events.append(_chat_chunk({"tool_calls": [call]}))
            events += [
                _chat_chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
                for piece in _halves(arguments)
            ]
        events.append(_chat_chunk({}, _chat_end(reply)))
        events.append(_event({**_CHAT_CHUNK, "choices": [], "usage": _chat_usage(reply)}))
        events.append(b"data: [DONE]\n\n")
        return events

    def stream_error(self, reply: Reply) -> bytes:
        return _event(self.error(reply))

    def error(self, reply: Reply) -> Json:
        return _openai_error(reply)


_CHAT_CHUNK: Final[Json] = {
    "id": f"chatcmpl-{_ID}",
    "object": "chat.completion.chunk",
    "created": _CREATED,
    "model": MODEL,
}


def _chat_chunk(delta: Json, finish: str | None = None) -> bytes:
    choice: Json = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return _event({**_CHAT_CHUNK, "choices": [choice], "usage": None})


def _chat_end(reply: Reply) -> str:
    if reply.finish == "refusal":
        return "stop"
    return reply.finish or ("tool_calls" if reply.calls else "stop")


def _chat_usage(reply: Reply) -> Json:
    given, made = reply.usage
    return {
        "prompt_tokens": given,
        "completion_tokens": made,
        "total_tokens": given + made,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


class _Responses:
    ping = b": ping\n\n"

    def newest(self, body: Json) -> tuple[str, int]:
        given: str | Sequence[Json] = body.get("input") or ()
        if isinstance(given, str):
            return given, 0
        rounds = 0
        for at in range(len(given) - 1, -1, -1):
            kind = given[at].get("type", "message")
            before = given[at - 1].get("type", "message") if at else ""
            if kind == "function_call" and before != "function_call":  # the first call of a round
                rounds += 1
            elif kind == "message" and given[at].get("role") == "user" and before != "function_call_output":
                return _text(given[at].get("content")), rounds
        return "", rounds

    def document(self, reply: Reply) -> Json:
        return _response(reply, _response_items(reply), ended=True)

    def stream(self, reply: Reply) -> list[bytes]:
        opened = _response(reply, [], ended=False)
        events: list[Json] = [
            {"type": "response.created", "response": opened},
            {"type": "response.in_progress", "response": opened},
        ]
        items = _response_items(reply)
        for index, item in enumerate(items):
            events += _response_item_events(reply, index, item)
        end = "response.incomplete" if reply.finish in ("length", "content_filter") else "response.completed"
        events.append({"type": end, "response": _response(reply, items, ended=True)})
        return [_named_event({**event, "sequence_number": number}) for number, event in enumerate(events)]

    def stream_error(self, reply: Reply) -> bytes:
        return _named_event(
            {
                "type": "error",
                "code": reply.error_code or "server_error",
                "message": reply.error_message,
                "param": None,
                "sequence_number": 0,
            }
        )

    def error(self, reply: Reply) -> Json:
        return _openai_error(reply)


def _response(reply: Reply, items: list[Json], *, ended: bool) -> Json:
    given, made = reply.usage
    cut = ended and reply.finish in ("length", "content_filter")
    reason = "max_output_tokens" if reply.finish == "length" else reply.finish
    return {
        "id": f"resp_{_ID}",
        "object": "response",
        "created_at": _CREATED,
        "status": "incomplete" if cut else "completed" if ended else "in_progress",
        "error": None,
        "incomplete_details": {"reason": reason} if cut else None,
        "instructions": None,
        "metadata": {},
        "model": MODEL,
        "output": items,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": given,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": given + made,
        }
        if ended
        else None,
    }


def _response_items(reply: Reply) -> list[Json]:
    items: list[Json] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        items.append(
            {
                "type": "reasoning",
                "id": f"rs_{_ID}",
                "summary": summary,
                "encrypted_content": f"sealed-{_ID}",
            }
        )
    if reply.text:
        part: Json = {"type": "output_text", "text": reply.text, "annotations": []}
        if reply.finish == "refusal":
            part = {"type": "refusal", "refusal": reply.text}
        items.append(
            {
                "type": "message",
                "id": f"msg_{_ID}",
                "status": "completed",
                "role": "assistant",
                "content": [part],
            }
        )
    items += [
        {
            "type": "function_call",
            "id": f"fc_{id}",
            "call_id": id,
            "name": name,
            "arguments": arguments,
            "status": "completed",
        }
        for id, name, arguments in _calls(reply)
    ]
    return items


def _response_item_events(reply: Reply, index: int, item: Json) -> list[Json]:
    at: Json = {"output_index": index, "item_id": item["id"]}
    opened: Json = {"type": "response.output_item.added", "output_index": index}
    closed: Json = {"type": "response.output_item.done", "output_index": index, "item": item}
    match item["type"]:
        case "message":
            part: Json = item["content"][0]
            field = "text" if part["type"] == "output_text" else "refusal"
            name = "response.output_text" if field == "text" else "response.refusal"
            at["content_index"] = 0
            more: Json = {"logprobs": []} if field == "text" else {}
            return [
                {**opened, "item": {**item, "status": "in_progress", "content": []}},
                {"type": "response.content_part.added", **at, "part": {**part, field: ""}},
                *({"type": f"{name}.delta", **at, "delta": piece, **more} for piece in reply.pieces),
                {"type": f"{name}.done", **at, field: part[field], **more},
                {"type": "response.content_part.done", **at, "part": part},
                closed,
            ]
        case "function_call":
            name = "response.function_call_arguments"
            text: str = item["arguments"]
            return [
                {**opened, "item": {**item, "status": "in_progress", "arguments": ""}},
                *({"type": f"{name}.delta", **at, "delta": piece} for piece in _halves(text)),
                {"type": f"{name}.done", **at, "name": item["name"], "arguments": text},
                closed,
            ]
        case _:
            name = "response.reasoning_summary_text"
            at["summary_index"] = 0
            part = item["summary"][0]
            return [
                {**opened, "item": {**item, "summary": []}},
                {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}},
                {"type": f"{name}.delta", **at, "delta": part["text"]},
                {"type": f"{name}.done", **at, "text": part["text"]},
                {"type": "response.reasoning_summary_part.done", **at, "part": part},
                closed,
            ]


class _Anthropic:
    ping = b'event: ping\ndata: {"type":"ping"}\n\n'

    def newest(self, body: Json) -> tuple[str, int]:
        rounds = 0
        for message in reversed(body.get("messages") or ()):
            content: Any = message.get("content") or ()
            kinds = [] if isinstance(content, str) else [block.get("type") for block in content]
            if message.get("role") == "assistant":
                rounds += "tool_use" in kinds
            elif "tool_result" not in kinds:
                return _text(content), rounds
        return "", rounds

    def document(self, reply: Reply) -> Json:
        given, made = reply.usage
        return {
            "id": f"msg_{_ID}",
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": _blocks(reply),
            "stop_reason": _anthropic_end(reply),
            "stop_sequence": None,
            "usage": {"input_tokens": given, "output_tokens": made},
        }

    def stream(self, reply: Reply) -> list[bytes]:
        given, made = reply.usage
        start: Json = {**self.document(reply), "content": [], "stop_reason": None}
        start["usage"] = {"input_tokens": given, "output_tokens": 1}
        events: list[Json] = [{"type": "message_start", "message": start}]
        for index, block in enumerate(_blocks(reply)):
            events += _block_events(reply, index, block)
        delta = {"stop_reason": _anthropic_end(reply), "stop_sequence": None}
        events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": made}})
        events.append({"type": "message_stop"})
        return [_named_event(event) for event in events]

    def stream_error(self, reply: Reply) -> bytes:
        return _named_event(self.error(reply))

    def error(self, reply: Reply) -> Json:
        code = reply.error_code or _ANTHROPIC_ERRORS.get(reply.status, "api_error")
        return {"type": "error", "error": {"type": code, "message": reply.error_message}}


_ANTHROPIC_ERRORS: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def _blocks(reply: Reply) -> list[Json]:
    blocks: list[Json] = []
    if reply.reasoning:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": f"signed-{_ID}"})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for id, name, arguments in _calls(reply):
        try:
            given = msgspec.json.decode(arguments)
        except msgspec.DecodeError:
            given = {}
        blocks.append({"type": "tool_use", "id": id, "name": name, "input": given})
    return blocks


def _block_events(reply: Reply, index: int, block: Json) -> list[Json]:
    empty: Json
    deltas: list[Json]
    match block["type"]:
        case "text":
            empty = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in reply.pieces]
        case "thinking":
            empty = {**block, "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case _:
            empty = {**block, "input": {}}
            arguments = next(a for id, _, a in _calls(reply) if id == block["id"])
            deltas = [{"type": "input_json_delta", "partial_json": p} for p in _halves(arguments)]
    return [
        {"type": "content_block_start", "index": index, "content_block": empty},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _anthropic_end(reply: Reply) -> str:
    natural = "tool_use" if reply.calls else "end_turn"
    return {"": natural, "length": "max_tokens", "content_filter": "refusal"}.get(reply.finish, reply.finish)


def _calls(reply: Reply) -> list[tuple[str, str, str]]:
    """(id, name, argument text) of each call."""
    return [(f"call_{_ID}_{n}", call.name, call.text) for n, call in enumerate(reply.calls)]


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


def _text(content: Any) -> str:
    """The text of a message's content: a string, or the text parts of a list."""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or ())


def _event(body: Json) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def _named_event(body: Json) -> bytes:
    return b"event: " + str(body["type"]).encode() + b"\n" + _event(body)


def _openai_error(reply: Reply) -> Json:
    kind = "server_error" if reply.status >= 500 or reply.status == 200 else "invalid_request_error"
    return {
        "error": {
            "message": reply.error_message,
            "type": kind,
            "param": None,
            "code": reply.error_code or None,
        }
    }


CHAT: Final[Dialect] = _Chat()
RESPONSES: Final[Dialect] = _Responses()
ANTHROPIC: Final[Dialect] = _Anthropic()
DIALECTS: Final[Mapping[str, Dialect]] = {
    "completions": CHAT,
    "responses": RESPONSES,
    "messages": ANTHROPIC,
}
"""By the last segment of the request's path."""
