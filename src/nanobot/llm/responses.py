"""The Responses dialect: OpenAI's newer interface. The provider stores nothing; the whole input is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from nanobot.llm import failures
from nanobot.llm import request as wire
from nanobot.llm.assemble import Assembly
from nanobot.llm.chat_completions import NO_SAMPLING
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
from nanobot.llm.endpoint import Adaptations, Endpoint
from nanobot.llm.messages import (
    Content,
    JsonObject,
    Message,
    ProviderData,
    Reasoning,
    Text,
    ToolCall,
    ToolOutput,
)
from nanobot.llm.model import Emit, FinishReason, ModelRequest, ModelResponse, ToolSpec, Usage
from nanobot.llm.provider import opaque
from nanobot.llm.usage import estimated, number

KIND: Final = "responses"
_TOOLS_KEY: Final = "responses"
_HOSTED: Final = ("file_search", "web_search_preview", "computer_use_preview")
_OFFICIAL: Final = "https://api.openai.com/"


class Responses:
    """`POST <base>/responses`, always streaming."""

    path = "/responses"

    def headers(self, endpoint: Endpoint) -> Mapping[str, str]:
        return {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}

    def encode(self, request: ModelRequest, endpoint: Endpoint, learned: Adaptations) -> bytes:
        scope = endpoint.scope(request.model)
        images = "images" not in learned.refused
        media_results = endpoint.base_url.startswith(_OFFICIAL)
        writer = _Writer(scope, images=images, media_results=media_results)
        items = wire.encoded(
            wire.conversation(request.messages), f"responses|{scope}|{images:d}", writer.message
        )
        lists = {"input": items}
        if request.tools.tools:
            lists["tools"] = [wire.encoded_tools(request.tools, _TOOLS_KEY, _tool)]
        return wire.body(_options(request, endpoint, learned), **lists)

    def read(self, request: ModelRequest, endpoint: Endpoint, emit: Emit) -> ResponsesReading:
        return ResponsesReading(request, endpoint, emit)


def _options(request: ModelRequest, endpoint: Endpoint, learned: Adaptations) -> JsonObject:
    name = request.model.rpartition("/")[2]
    samples = not NO_SAMPLING.match(name)
    reasons = not samples and "-chat" not in name
    options: JsonObject = {"model": request.model, "stream": True, "store": False}
    if request.instructions:
        options["instructions"] = clean(request.instructions)
    if samples and "temperature" not in learned.refused:
        options["temperature"] = request.temperature
    if samples and "top_p" not in learned.refused:
        options["top_p"] = request.top_p
    options["max_output_tokens"] = learned.limit(request.max_tokens)
    options["truncation"] = request.truncation
    if request.tools.tools and (choice := request.tool_choice):
        if choice in ("auto", "none", "required"):
            options["tool_choice"] = choice
        elif choice in _HOSTED:
            options["tool_choice"] = {"type": choice}
        else:
            options["tool_choice"] = {"type": "function", "name": choice}
    if output := request.output:
        shape: JsonObject = {"type": "json_schema", "name": output.name, "schema": output.schema}
        shape["strict"] = output.strict
        if output.description:
            shape["description"] = output.description
        options["text"] = {"format": shape}
    wanted = reasons or request.effort or request.reasoning_summary
    if wanted and "reasoning" not in learned.refused:
        reasoning = {"effort": request.effort or "medium", "summary": request.reasoning_summary or "auto"}
        options["reasoning"] = reasoning
        options["include"] = ["reasoning.encrypted_content"]
    if endpoint.quirks.prompt_cache and request.thread:
        options["prompt_cache_key"] = opaque(request.thread)
    return options


def _tool(tool: ToolSpec) -> JsonObject:
    body: JsonObject = {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.schema,
        "strict": False,
    }
    kind = str(tool.extensions.get("type", ""))
    if kind == "computer_use_preview":
        return {}
    if kind.startswith("computer_"):
        return {k: v for k, v in body.items() if k not in ("description", "strict")}
    return body


class _Writer:
    """Writes messages as input items, for one scope."""

    def __init__(self, scope: str, *, images: bool, media_results: bool) -> None:
        self._scope = scope
        self._images = images
        self._media_results = media_results

    def message(self, message: Message) -> bytes:
        items = self._assistant(message) if message.role == "assistant" else self._user(message)
        return b",".join(encode(i) for i in items)

    def _assistant(self, message: Message) -> list[JsonObject]:
        items: list[JsonObject] = []
        for item in message.items:
            match item:
                case Text(_, text) if text.strip():
                    items.append(_said(clean(text)))
                case ToolCall():
                    items.append(self._call(item))
                case Reasoning(_, _, ProviderData(kind, scope, data)) if (
                    kind == KIND and scope == self._scope
                ):
                    items.append(data)
                case _:
                    pass
        return items or [_said("(empty)")]

    def _call(self, call: ToolCall) -> JsonObject:
        body: JsonObject = {
            "type": "function_call",
            "call_id": wire.call_id(call.call_id),
            "name": call.name,
            "arguments": clean(call.arguments) if arguments_of(call.arguments) else "{}",
        }
        if (kept := call.provider_data) and kept.kind == KIND and kept.scope == self._scope:
            body["id"] = kept.data["id"]
        return body

    def _user(self, message: Message) -> list[JsonObject]:
        """Results first; what they cannot hold and the rest in one user message after them."""
        items: list[JsonObject] = []
        rest: list[Part] = []
        for item in message.items:
            match item:
                case ToolOutput():
                    output, further = self._output(item)
                    rest += further
                    items.append(
                        {
                            "type": "function_call_output",
                            "call_id": wire.call_id(item.call_id),
                            "output": output,
                        }
                    )
                case Text(_, text):
                    rest += parts_of([{"type": "text", "text": text}])
                case Content(_, body):
                    rest += parts_of([body], images=self._images)
                case _:
                    pass
        if rest or not items:
            content = [_part(p) for p in rest or [TextPart("(empty)")]]
            items.append({"type": "message", "role": "user", "content": content})
        return items

    def _output(self, result: ToolOutput) -> tuple[str | list[JsonObject], list[Part]]:
        """The output of a call, and the parts that have to follow as a user message."""
        parts = parts_of(result.content, images=self._images)
        text = "\n".join(p.text for p in parts if isinstance(p, TextPart))
        media = [p for p in parts if not isinstance(p, TextPart)]
        if result.is_error:
            text = error_text(text)
        if not media:
            return text or "completed", []
        if self._media_results:
            return [_part(p) for p in ([TextPart(text)] if text else []) + media], []
        note = TextPart(f"Attachments of the result of call {result.call_id}:")
        return text or "completed", [note, *media]


def _said(text: str) -> JsonObject:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def _part(part: Part) -> JsonObject:
    match part:
        case TextPart(text):
            return {"type": "input_text", "text": text}
        case ImagePart(mime, data):
            return {"type": "input_image", "image_url": f"data:{mime};base64,{data}", "detail": "auto"}
        case AudioPart(mime, data):
            name = "audio." + mime.rpartition("/")[2]
            return {"type": "input_file", "filename": name, "file_data": f"data:{mime};base64,{data}"}
        case FilePart(mime, data, name):
            return {"type": "input_file", "filename": name, "file_data": f"data:{mime};base64,{data}"}


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
