"""Answers of the Responses dialect, read event by event."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from nanobot.llm import failures
from nanobot.llm.assemble import Assembly
from nanobot.llm.endpoint import Endpoint
from nanobot.llm.model import Emit, FinishReason, ModelRequest, ModelResponse, Usage
from nanobot.llm.usage import estimated, number

KIND: Final = "responses"


class _Event(msgspec.Struct):
    type: str
    delta: Any = None
    output_index: int = 0
    content_index: int = 0
    summary_index: int = 0
    arguments: str | None = None
    item: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    error: Any = None
    code: Any = None
    message: str | None = None


_decode: Final[Callable[[bytes], _Event]] = msgspec.json.Decoder(_Event, strict=False).decode


class ResponsesReading:
    """One streamed answer. Items are told apart by `output_index`; only a terminal event ends it."""

    def __init__(self, request: ModelRequest, endpoint: Endpoint, emit: Emit) -> None:
        self.done = False
        self._request = request
        self._endpoint = endpoint
        self._into = Assembly(emit, kind=KIND, scope=endpoint.scope(request.model))
        self._model = ""
        self._refused = False
        self._finish: FinishReason = "stop"
        self._usage: dict[str, Any] | None = None
        self._summary: dict[int, int] = {}  # item → part of its summary that is being written

    @property
    def shown(self) -> bool:
        return self._into.shown

    def event(self, data: bytes) -> None:
        if data == b"[DONE]":
            return
        event = _decode(data)
        index = event.output_index
        match event.type:
            case "response.output_text.delta":
                self._into.text((index, "text"), event.delta)
            case "response.function_call_arguments.delta":
                self._into.call((index, "call"), piece=event.delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._think(event)
            case "response.refusal.delta":
                self._refused = True
                self._into.text((index, "text"), event.delta)
            case "response.output_item.added" if event.item:
                self._open(index, event.item)
            case "response.function_call_arguments.done" if event.arguments is not None:
                if (index, "call") in self._into:
                    self._into.arguments((index, "call"), event.arguments)
            case "response.output_item.done" if event.item:
                self._item(index, event.item)
            case "response.created":
                self._model = (event.response or {}).get("model") or ""
            case "response.completed" | "response.incomplete":
                self._end(event.response or {})
            case "response.failed":
                raise self._error((event.response or {}).get("error") or {"message": "the answer failed"})
            case "error":
                raise self._error(event.error or {"code": event.code, "message": event.message})
            case _:
                pass

    def whole(self, body: bytes) -> None:
        answer: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
        if answer.get("error"):
            raise self._error(answer["error"])
        self._model = answer.get("model") or ""
        self._end(answer)

    def response(self) -> ModelResponse:
        if not self.done:
            raise failures.cut_off(self._endpoint.provider)
        finish = self._finish
        if self._refused:
            finish = "refusal"
        elif finish == "stop" and self._into.calls():
            finish = "tool_calls"
        items = self._into.items(finish)
        return ModelResponse(
            id=self._into.id,
            model=self._model or self._request.model,
            items=items,
            finish=finish,
            usage=_usage(self._usage) or estimated(self._request, items),
        )

    def _think(self, event: _Event) -> None:
        key = (event.output_index, "reasoning")
        part = event.summary_index
        if self._summary.setdefault(event.output_index, part) != part:
            self._summary[event.output_index] = part
            if not str(event.delta)[:1].isspace() and not self._into.text_of(key)[-1:].isspace():
                self._into.reasoning(key, "\n")
        self._into.reasoning(key, event.delta)

    def _open(self, index: int, item: Mapping[str, Any]) -> None:
        if item.get("type") == "function_call":
            self._into.call(
                (index, "call"), call_id=str(item.get("call_id") or ""), name=str(item.get("name") or "")
            )
        elif item.get("type") == "reasoning":
            self._into.reasoning((index, "reasoning"), "")

    def _item(self, index: int, item: dict[str, Any]) -> None:
        """A complete item: whatever of it was not streamed is added."""
        match item.get("type"):
            case "message":
                for block in cast("Sequence[dict[str, Any]]", item.get("content") or ()):
                    if block.get("type") == "refusal":
                        self._refused = True
                text = "".join(
                    str(block.get("text") or block.get("refusal") or "")
                    for block in cast("Sequence[dict[str, Any]]", item.get("content") or ())
                )
                self._into.whole_text((index, "text"), text)
            case "function_call":
                if (index, "call") not in self._into:
                    self._open(index, item)
                self._into.arguments((index, "call"), str(item.get("arguments") or ""))
                if item.get("id"):
                    self._into.keep((index, "call"), {"id": item["id"]})
            case "reasoning":
                parts = item.get("summary") or item.get("content") or ()
                summary = "\n".join(str(p.get("text", "")) for p in cast("Sequence[dict[str, Any]]", parts))
                self._into.whole_reasoning((index, "reasoning"), summary)
                kept = {k: v for k, v in item.items() if k != "status" and v is not None}
                self._into.keep((index, "reasoning"), {**kept, "summary": item.get("summary") or []})
            case _:
                # What the provider did by itself (a search, code): wanted back as it came.
                self._into.keep((index, "hosted"), item)

    def _end(self, answer: Mapping[str, Any]) -> None:
        self.done = True
        self._model = self._model or answer.get("model") or ""
        self._usage = answer.get("usage")
        if answer.get("status") == "failed":
            raise self._error(answer.get("error") or {"message": "the answer failed"})
        if answer.get("status") == "incomplete":
            details: Mapping[str, Any] = answer.get("incomplete_details") or {}
            self._finish = "content_filter" if details.get("reason") == "content_filter" else "length"
            return
        for index, item in enumerate(cast("Sequence[dict[str, Any]]", answer.get("output") or ())):
            self._item(index, item)

    def _error(self, said: Any) -> Exception:
        return failures.reported(self._endpoint.provider, said, secret=self._endpoint.api_key)


def _usage(said: dict[str, Any] | None) -> Usage | None:
    if not said:
        return None
    given: dict[str, Any] = said.get("input_tokens_details") or {}
    made: dict[str, Any] = said.get("output_tokens_details") or {}
    return Usage(
        input_tokens=number(said.get("input_tokens")) or 0,
        output_tokens=number(said.get("output_tokens")) or 0,
        cache_read_tokens=number(given.get("cached_tokens")),
        cache_write_tokens=number(given.get("cache_write_tokens")),
        reasoning_tokens=number(made.get("reasoning_tokens")),
    )
