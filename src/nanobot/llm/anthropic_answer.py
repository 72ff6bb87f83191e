"""Answers of the Messages dialect, read event by event."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from nanobot.llm import failures
from nanobot.llm.assemble import Assembly
from nanobot.llm.content import encode
from nanobot.llm.endpoint import Endpoint
from nanobot.llm.model import Emit, FinishReason, ModelRequest, ModelResponse, Usage
from nanobot.llm.usage import estimated, number

KIND: Final = "anthropic"
_FINISH: Final[Mapping[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "refusal",
}


class _Delta(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str
    index: int = 0
    delta: _Delta | None = None
    content_block: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


_decode: Final[Callable[[bytes], _Event]] = msgspec.json.Decoder(_Event, strict=False).decode


class AnthropicReading:
    """One streamed answer. Blocks are told apart by `index`; only `message_stop` ends it."""

    def __init__(self, request: ModelRequest, endpoint: Endpoint, emit: Emit) -> None:
        self.done = False
        self._request = request
        self._endpoint = endpoint
        self._into = Assembly(emit, kind=KIND, scope=endpoint.scope(request.model))
        self._model = ""
        self._stop = ""
        self._usage: dict[str, Any] = {}
        self._signatures: dict[int, str] = {}
        self._inputs: dict[int, Any] = {}  # complete inputs that came with the start of a block

    @property
    def shown(self) -> bool:
        return self._into.shown

    def event(self, data: bytes) -> None:
        event = _decode(data)
        match event.type:
            case "content_block_delta" if event.delta:
                self._delta(event.index, event.delta)
            case "content_block_start" if event.content_block:
                self._open(event.index, event.content_block)
            case "content_block_stop":
                self._close(event.index)
            case "message_start":
                self._start(event.message or {})
            case "message_delta":
                if event.delta and event.delta.stop_reason:
                    self._stop = event.delta.stop_reason
                self._count(event.usage)
            case "message_stop":
                self.done = True
            case "error":
                raise failures.reported(
                    self._endpoint.provider, {"error": event.error}, secret=self._endpoint.api_key
                )
            case _:
                pass

    def whole(self, body: bytes) -> None:
        answer: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
        if answer.get("type") == "error":
            raise failures.reported(self._endpoint.provider, answer, secret=self._endpoint.api_key)
        self._start(answer)
        blocks: Sequence[dict[str, Any]] = answer.get("content") or ()
        for index, block in enumerate(blocks):
            self._open(index, block)
            self._close(index)
        self._stop = answer.get("stop_reason") or ""
        self.done = True

    def response(self) -> ModelResponse:
        if not self.done:
            raise failures.cut_off(self._endpoint.provider)
        if self._stop == "model_context_window_exceeded" and not self._into.shown:
            raise failures.reported(self._endpoint.provider, {"code": self._stop})
        finish = self._finish()
        items = self._into.items(finish)
        return ModelResponse(
            id=self._into.id,
            model=self._model or self._request.model,
            items=items,
            finish=finish,
            usage=_usage(self._usage) or estimated(self._request, items),
        )

    def _finish(self) -> FinishReason:
        if self._stop == "model_context_window_exceeded":
            return "length"
        finish = _FINISH.get(self._stop, "stop")
        return "tool_calls" if finish == "stop" and self._into.calls() else finish

    def _start(self, message: Mapping[str, Any]) -> None:
        self._model = message.get("model") or ""
        self._count(message.get("usage"))

    def _delta(self, index: int, delta: _Delta) -> None:
        match delta.type:
            case "text_delta":
                self._into.text(index, delta.text)
            case "input_json_delta":
                if delta.partial_json:
                    self._into.call(index, piece=delta.partial_json)
            case "thinking_delta":
                self._into.reasoning(index, delta.thinking)
            case "signature_delta":
                self._signatures[index] = self._signatures.get(index, "") + delta.signature
            case _:
                pass

    def _open(self, index: int, block: dict[str, Any]) -> None:
        match block.get("type"):
            case "text":
                self._into.text(index, str(block.get("text") or ""))
            case "tool_use":
                self._into.call(index, call_id=str(block.get("id") or ""), name=str(block.get("name") or ""))
                self._inputs[index] = block.get("input")
            case "thinking":
                self._into.reasoning(index, str(block.get("thinking") or ""))
                self._signatures[index] = str(block.get("signature") or "")
            case _:
                # Redacted thinking and what the provider's own tools did: wanted back as it came.
                self._into.keep(index, block)

    def _close(self, index: int) -> None:
        if index in self._signatures:
            thinking = self._into.text_of(index)
            signature = self._signatures[index]
            self._into.keep(index, {"type": "thinking", "thinking": thinking, "signature": signature})
        elif index in self._inputs and not self._into.text_of(index):
            self._into.arguments(index, encode(self._inputs[index] or {}).decode())

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        self._usage |= {k: v for k, v in (usage or {}).items() if v is not None}


def _usage(said: Mapping[str, Any]) -> Usage | None:
    if not said:
        return None
    read = number(said.get("cache_read_input_tokens"))
    written = number(said.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=(number(said.get("input_tokens")) or 0) + (read or 0) + (written or 0),
        output_tokens=number(said.get("output_tokens")) or 0,
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
