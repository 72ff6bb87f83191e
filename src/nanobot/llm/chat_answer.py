"""Answers of the Chat Completions dialect, read chunk by chunk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from nanobot.llm import failures
from nanobot.llm.assemble import Assembly
from nanobot.llm.content import arguments_of, encode
from nanobot.llm.endpoint import Endpoint
from nanobot.llm.model import Emit, FinishReason, ModelRequest, ModelResponse, Usage
from nanobot.llm.think_tags import ThinkTags
from nanobot.llm.usage import estimated, first_number, number

log = logging.getLogger(__name__)

KIND: Final = "chat"
_FINISH: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
    "refusal": "refusal",
}


class _Delta(msgspec.Struct):
    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    reasoning_details: list[Any] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    function_call: dict[str, Any] | None = None


class _Choice(msgspec.Struct):
    index: int | None = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


_decode: Final[Callable[[bytes], _Chunk]] = msgspec.json.Decoder(_Chunk, strict=False).decode


class ChatReading:
    """One streamed answer. Ends with `[DONE]`, or with the stream once a finish reason was given."""

    def __init__(self, request: ModelRequest, endpoint: Endpoint, emit: Emit) -> None:
        self.done = False
        self._request = request
        self._endpoint = endpoint
        self._into = Assembly(emit, kind=KIND, scope=endpoint.scope(request.model))
        self._tags = ThinkTags()
        self._native_thinking = False
        self._model = ""
        self._finish: str | None = None
        self._refused = False
        self._usage: dict[str, Any] | None = None
        self._any_choice = False
        self._call_keys: dict[tuple[int, int], int] = {}  # (choice, index) → generation of the call there
        self._call_ids: dict[tuple[int, int, int], str] = {}
        self._details: list[Any] = []

    @property
    def shown(self) -> bool:
        return self._into.shown

    def event(self, data: bytes) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        chunk = _decode(data)
        if chunk.error:
            raise failures.reported(
                self._endpoint.provider, {"error": chunk.error}, secret=self._endpoint.api_key
            )
        if chunk.model and not self._model:
            self._model = chunk.model
        if chunk.usage is not None:
            self._usage = chunk.usage
        for choice in chunk.choices or ():
            self._any_choice = True
            delta = choice.delta or choice.message
            if delta is not None:
                self._delta(choice.index or 0, delta)
            if choice.finish_reason:
                self._finish = choice.finish_reason

    def whole(self, body: bytes) -> None:
        self.event(body)
        self.done = True

    def response(self) -> ModelResponse:
        into = self._into
        if not self.done and self._finish is None:
            raise failures.cut_off(self._endpoint.provider)
        if not self._any_choice and self._usage is None:
            raise failures.reported(
                self._endpoint.provider, {"code": "server_error", "message": "an answer without content"}
            )
        if self._finish is None and any(arguments_of(a) is None for a in into.calls()):
            raise failures.cut_off(self._endpoint.provider)
        if self._finish == "insufficient_system_resource":
            raise failures.reported(self._endpoint.provider, {"code": self._finish, "message": "overloaded"})
        self._put(self._tags.end())
        if self._details:
            into.keep("reasoning", {"reasoning_details": _joined_details(self._details)})
        elif self._native_thinking and self._endpoint.quirks.replay_reasoning:
            into.keep("reasoning", {})
        finish = self._finish_reason()
        items = into.items(finish)
        return ModelResponse(
            id=into.id,
            model=self._model or self._request.model,
            items=items,
            finish=finish,
            usage=_usage(self._usage) or estimated(self._request, items),
        )

    def _delta(self, choice: int, delta: _Delta) -> None:
        if thinking := delta.reasoning_content or delta.reasoning:
            self._think(thinking)
        content = delta.content
        if content:
            if isinstance(content, str):
                self._text(content)
            else:
                self._blocks(content)
        if delta.refusal:
            self._refused = True
            self._into.text("text", delta.refusal)
        if delta.reasoning_details:
            self._into.reasoning("reasoning", "")  # takes its place before the text
            self._details += delta.reasoning_details
        for position, call in enumerate(delta.tool_calls or ()):
            self._call(choice, position, call)
        if delta.function_call:
            self._call(choice, 0, {"index": 0, "function": delta.function_call})

    def _text(self, text: str) -> None:
        pieces = self._tags.split(text)
        if len(pieces) == 1 and not pieces[0][0]:
            self._into.text("text", pieces[0][1])  # nearly always
        else:
            self._put(pieces)

    def _put(self, pieces: Sequence[tuple[bool, str]]) -> None:
        for thinking, text in pieces:
            if not thinking:
                self._into.text("text", text)
            elif not self._native_thinking:
                self._into.reasoning("reasoning", text)

    def _think(self, text: str) -> None:
        self._native_thinking = True
        self._into.reasoning("reasoning", text)

    def _blocks(self, blocks: Sequence[Any]) -> None:
        """Content in blocks: `{type: text, text}` and `{type: thinking, thinking: [{text}]}`."""
        for block in blocks:
            if not isinstance(block, dict):
                continue
            found = cast("dict[str, Any]", block)
            match found.get("type"):
                case "text":
                    self._text(str(found.get("text", "")))
                case "thinking":
                    thinking: Any = found.get("thinking") or ()
                    parts = [thinking] if isinstance(thinking, str) else [p.get("text", "") for p in thinking]
                    self._think("".join(parts))
                case _:
                    pass

    def _call(self, choice: int, position: int, call: dict[str, Any]) -> None:
        function: dict[str, Any] = call.get("function") or {}
        id = str(call.get("id") or "")
        index = self._index(choice, position, id, call.get("index"))
        generation = self._call_keys.setdefault((choice, index), 0)
        known = self._call_ids.get((choice, index, generation), "")
        if id and known and id != known:  # another call at a used index
            generation = self._call_keys[choice, index] = generation + 1
        key = (choice, index, generation)
        if id:
            self._call_ids.setdefault(key, id)
        arguments: Any = function.get("arguments")
        piece = arguments if isinstance(arguments, str) else encode(arguments).decode() if arguments else ""
        self._into.call(key, call_id=id, name=str(function.get("name") or ""), piece=piece)
        extra = {k: v for k, v in call.items() if k not in ("index", "id", "type", "function")}
        if extra:
            self._into.keep(key, (self._into.kept(key) or {}) | extra)

    def _index(self, choice: int, position: int, id: str, index: Any) -> int:
        """Where a call belongs: by its index, else by its id, else by its position in the chunk."""
        if isinstance(index, int):
            return index
        if not id:
            return max((i for c, i in self._call_keys if c == choice), default=position)
        for (c, i, _), known in self._call_ids.items():
            if c == choice and known == id:
                return i
        return len(self._call_keys)

    def _finish_reason(self) -> FinishReason:
        if self._refused:
            return "refusal"
        has_calls = bool(self._into.calls())
        finish = _FINISH.get(self._finish or "stop")
        if finish is None:
            log.warning(
                "unknown finish reason taken as stop",
                extra={"provider": self._endpoint.provider, "reason": self._finish},
            )
            finish = "stop"
        return "tool_calls" if has_calls and finish == "stop" else finish


def _joined_details(details: Sequence[Any]) -> list[Any]:
    """Streamed `reasoning_details` as the whole ones: fragments of one index have their texts joined."""
    joined: dict[Any, Any] = {}
    for position, detail in enumerate(details):
        if not isinstance(detail, dict) or "index" not in detail:
            joined["position", position] = detail
            continue
        fragment = cast("dict[str, Any]", detail)
        key = (fragment["index"], fragment.get("type"))
        earlier = cast("dict[str, Any] | None", joined.get(key))
        if earlier is None:
            joined[key] = dict(fragment)
            continue
        for name, value in fragment.items():
            if name in ("text", "summary", "data") and isinstance(value, str):
                earlier[name] = str(earlier.get(name) or "") + value
            elif value is not None:
                earlier[name] = value
    return list(joined.values())


def _usage(said: dict[str, Any] | None) -> Usage | None:
    if said is None:
        return None
    prompt: dict[str, Any] = said.get("prompt_tokens_details") or {}
    completion: dict[str, Any] = said.get("completion_tokens_details") or {}
    return Usage(
        input_tokens=number(said.get("prompt_tokens")) or 0,
        output_tokens=number(said.get("completion_tokens")) or 0,
        cache_read_tokens=first_number(
            prompt.get("cached_tokens"), said.get("cached_tokens"), said.get("prompt_cache_hit_tokens")
        ),
        cache_write_tokens=number(prompt.get("cache_write_tokens")),
        reasoning_tokens=number(completion.get("reasoning_tokens")),
    )
