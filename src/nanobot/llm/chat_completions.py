"""The Chat Completions dialect: OpenAI's older interface, and what most gateways and local servers speak."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from nanobot.llm import failures
from nanobot.llm import request as wire
from nanobot.llm.assemble import Assembly
from nanobot.llm.content import (
    AudioPart,
    FilePart,
    ImagePart,
    Part,
    TextPart,
    arguments_of,
    clean,
    encode,
    error_text,
    parts_of,
)
from nanobot.llm.endpoint import Adaptations, Endpoint, Quirks
from nanobot.llm.messages import Content, JsonObject, Message, Reasoning, Text, ToolCall, ToolOutput
from nanobot.llm.model import Emit, FinishReason, ModelRequest, ModelResponse, ToolSpec, Usage
from nanobot.llm.provider import opaque
from nanobot.llm.think_tags import ThinkTags
from nanobot.llm.usage import estimated, first_number, number

log = logging.getLogger(__name__)

KIND: Final = "chat"
_TOOLS_KEY: Final = "chat"
NO_SAMPLING: Final = re.compile(r"^(o[0-9]|gpt-([5-9]|[1-9][0-9]))")
"""Model names (last segment) that take no temperature: they reason."""
_NEW_LIMIT_NAME: Final = re.compile(r"^(o[134]|gpt-([5-9]|[1-9][0-9])|kimi-k3)")
_FINISH: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
    "refusal": "refusal",
}


class ChatCompletions:
    """`POST <base>/chat/completions`, always streaming."""

    path = "/chat/completions"

    def headers(self, endpoint: Endpoint) -> Mapping[str, str]:
        return {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}

    def encode(self, request: ModelRequest, endpoint: Endpoint, learned: Adaptations) -> bytes:
        quirks = endpoint.quirks
        scope = endpoint.scope(request.model)
        images = "images" not in learned.refused and not quirks.string_content
        writer = _Writer(scope, quirks, images=images)
        messages = wire.encoded(
            wire.conversation(request.messages), f"chat|{scope}|{images:d}", writer.message
        )
        if request.instructions:
            system = encode({"role": "system", "content": clean(request.instructions)})
            messages = [system, *messages]
        lists = {"messages": messages}
        if request.tools.tools:
            lists["tools"] = [wire.encoded_tools(request.tools, _TOOLS_KEY, _tool)]
        return wire.body(_options(request, quirks, learned), **lists)

    def read(self, request: ModelRequest, endpoint: Endpoint, emit: Emit) -> ChatReading:
        return ChatReading(request, endpoint, emit)


def _options(request: ModelRequest, quirks: Quirks, learned: Adaptations) -> JsonObject:
    refused = learned.refused
    name = request.model.rpartition("/")[2]
    samples = not NO_SAMPLING.match(name)
    options: JsonObject = {"model": request.model, "stream": True}
    if "stream_options" not in refused:
        options["stream_options"] = {"include_usage": True}
    if samples and "temperature" not in refused:
        options["temperature"] = request.temperature
    if samples and "top_p" not in refused:
        options["top_p"] = request.top_p
    if request.stop:
        options["stop"] = list(request.stop[:4])
    if limit := learned.limit(request.max_tokens):
        wanted = quirks.max_completion_tokens or bool(_NEW_LIMIT_NAME.match(name))
        names = ["max_completion_tokens", "max_tokens"] if wanted else ["max_tokens", "max_completion_tokens"]
        if field := next((n for n in names if n not in refused), None):
            options[field] = limit
    if request.tools.tools and request.tool_choice:
        choice = request.tool_choice
        options["tool_choice"] = (
            choice
            if choice in ("auto", "none", "required")
            else {"type": "function", "function": {"name": choice}}
        )
    if request.tools.tools and quirks.tool_stream:
        options["tool_stream"] = True
    if output := request.output:
        schema: JsonObject = {"name": output.name, "schema": output.schema, "strict": output.strict}
        if output.description:
            schema["description"] = output.description
        options["response_format"] = {"type": "json_schema", "json_schema": schema}
    if request.effort and "reasoning" not in refused:
        options |= _thinking(request.effort, quirks)
    if quirks.prompt_cache and request.thread:
        options["prompt_cache_key"] = opaque(request.thread)
    return options


def _thinking(effort: str, quirks: Quirks) -> JsonObject:
    thinks = effort not in ("none", "minimal")
    match quirks.thinking:
        case "thinking_type":
            return {"thinking": {"type": "enabled" if thinks else "disabled"}}
        case "enable_thinking":
            return {"enable_thinking": thinks}
        case "reasoning_split":
            return {"reasoning_split": thinks}
        case _:
            return {} if effort == "none" else {"reasoning_effort": effort}


def _tool(tool: ToolSpec) -> JsonObject:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


class _Writer:
    """Writes messages for one scope. A message becomes one wire message or several."""

    def __init__(self, scope: str, quirks: Quirks, *, images: bool) -> None:
        self._scope = scope
        self._quirks = quirks
        self._images = images

    def message(self, message: Message) -> bytes:
        written = self._assistant(message) if message.role == "assistant" else self._user(message)
        return b",".join(encode(m) for m in written)

    def _assistant(self, message: Message) -> list[JsonObject]:
        text = wire.texts(message)
        calls = [self._call(c) for c in message.calls]
        body: JsonObject = {"role": "assistant", "content": text if text.strip() else None}
        if calls:
            body["tool_calls"] = calls
        elif not text.strip():
            body["content"] = "(empty)"
        if self._quirks.replay_reasoning:
            body["reasoning_content"] = ""
        for item in message.items:
            if isinstance(item, Reasoning) and (kept := item.provider_data):
                if kept.kind == KIND and kept.scope == self._scope:
                    body |= kept.data
                    if self._quirks.replay_reasoning:
                        body["reasoning_content"] = clean("".join(item.summary))
        return [body]

    def _call(self, call: ToolCall) -> JsonObject:
        arguments = clean(call.arguments) if arguments_of(call.arguments) else "{}"
        body: JsonObject = {
            "id": self._call_id(call.call_id),
            "type": "function",
            "function": {"name": call.name, "arguments": arguments},
        }
        if (kept := call.provider_data) and kept.kind == KIND and kept.scope == self._scope:
            body |= kept.data
        return body

    def _user(self, message: Message) -> list[JsonObject]:
        """Results first, one `tool` message each; what they cannot hold and the rest in a user message."""
        written: list[JsonObject] = []
        own: list[Part] = []
        media: list[Part] = []
        for item in message.items:
            match item:
                case ToolOutput():
                    parts = parts_of(item.content, images=self._images)
                    said = "\n".join(p.text for p in parts if isinstance(p, TextPart))
                    attached = [p for p in parts if not isinstance(p, TextPart)]
                    if attached:
                        media.append(TextPart(f"Attachments of the result of call {item.call_id}:"))
                        media += attached
                        said = said or "(see the attachments below)"
                    said = said or "(empty)"
                    written.append(
                        {
                            "role": "tool",
                            "tool_call_id": self._call_id(item.call_id),
                            "content": error_text(said) if item.is_error else said,
                        }
                    )
                case Text(_, text):
                    own += parts_of([{"type": "text", "text": text}])
                case Content(_, body):
                    own += parts_of([body], images=self._images)
                case _:
                    pass
        if media or own or not written:
            written.append({"role": "user", "content": self._parts(media + own)})
        return written

    def _parts(self, parts: Sequence[Part]) -> str | list[JsonObject]:
        if not parts:
            return "(empty)"
        if len(parts) == 1 and isinstance(parts[0], TextPart):
            return parts[0].text
        written = [self._part(p) for p in parts]
        if self._quirks.string_content:
            return "\n".join(str(p.get("text", "[media not shown]")) for p in written)
        return written

    def _part(self, part: Part) -> JsonObject:
        match part:
            case TextPart(text):
                return {"type": "text", "text": text}
            case ImagePart(mime, data):
                return {
                    "type": "image_url",
                    "image_url": {"url": f"data:{mime};base64,{data}", "detail": "auto"},
                }
            case AudioPart(mime, data):
                kind = _AUDIO.get(mime)
                if kind is None:
                    return {"type": "text", "text": f"[audio {mime}: this model cannot hear it]"}
                return {"type": "input_audio", "input_audio": {"data": data, "format": kind}}
            case FilePart(mime, data, name):
                return {
                    "type": "file",
                    "file": {"filename": name, "file_data": f"data:{mime};base64,{data}"},
                }

    def _call_id(self, id: str) -> str:
        if not self._quirks.short_call_ids or (len(id) == 9 and id.isascii() and id.isalnum()):
            return wire.call_id(id)
        return hashlib.sha1(clean(id).encode(), usedforsecurity=False).hexdigest()[:9]


_AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


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
