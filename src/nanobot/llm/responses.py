"""The Responses dialect: OpenAI's newer interface. The provider stores nothing; the whole input is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from nanobot.llm import encoding
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
from nanobot.llm.model import Emit, ModelRequest, ToolSpec
from nanobot.llm.responses_answer import KIND, ResponsesReading

_TOOLS_KEY: Final = "responses"
_HOSTED: Final = ("file_search", "web_search_preview", "computer_use_preview")
_OFFICIAL: Final = "https://api.openai.com/"


class Responses:
    """`POST <base>/responses`, always streaming."""

    path = "/responses"
    models_path = "/models"

    def headers(self, endpoint: Endpoint) -> Mapping[str, str]:
        return {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}

    def encode(self, request: ModelRequest, endpoint: Endpoint, learned: Adaptations) -> bytes:
        scope = endpoint.scope(request.model)
        images = "images" not in learned.refused
        media_results = endpoint.base_url.startswith(_OFFICIAL)
        writer = _Writer(scope, images=images, media_results=media_results)
        said = encoding.written(request, f"responses|{scope}|{images:d}", writer.message, _as_they_are)
        lists = {"input": [said.beginning, *said.forms]}
        if request.tools.tools:
            lists["tools"] = [encoding.encoded_tools(request.tools, _TOOLS_KEY, _tool)]
        return encoding.body(_options(request, endpoint, learned), **lists)

    def read(self, request: ModelRequest, endpoint: Endpoint, emit: Emit) -> ResponsesReading:
        return ResponsesReading(request, endpoint, emit)


def _as_they_are(_messages: Sequence[Message], forms: list[bytes]) -> list[bytes]:
    return forms


def _options(request: ModelRequest, endpoint: Endpoint, learned: Adaptations) -> JsonObject:
    samples = not encoding.is_reasoner(request.model)
    reasons = not samples and "-chat" not in request.model
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
        options["prompt_cache_key"] = encoding.opaque(request.thread)
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
                case Reasoning(provider_data=ProviderData() as kept) if kept.is_for(KIND, self._scope):
                    items.append(kept.data)
                case _:
                    pass
        return items or [_said("(empty)")]

    def _call(self, call: ToolCall) -> JsonObject:
        body: JsonObject = {
            "type": "function_call",
            "call_id": encoding.call_id(call.call_id),
            "name": call.name,
            "arguments": clean(call.arguments) if arguments_of(call.arguments) else "{}",
        }
        if (kept := call.provider_data) and kept.is_for(KIND, self._scope):
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
                            "call_id": encoding.call_id(item.call_id),
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
