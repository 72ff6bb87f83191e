"""The Chat Completions dialect: OpenAI's older interface, and what most gateways and local servers speak."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Final

from nanobot.llm import encoding
from nanobot.llm.chat_answer import KIND, ChatReading
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
from nanobot.llm.model import Emit, ModelRequest, ToolSpec

_TOOLS_KEY: Final = "chat"
_RESULT: Final = b'{"role":"tool"'
_AFTER: Final = b"\0"
"""Stands in an encoded message between its results and the rest. No JSON holds it."""
_NEW_LIMIT_NAME: Final = re.compile(r"^(o[134]|gpt-([5-9]|[1-9][0-9])|kimi-k3)")


class ChatCompletions:
    """`POST <base>/chat/completions`, always streaming."""

    path = "/chat/completions"
    models_path = "/models"

    def headers(self, endpoint: Endpoint) -> Mapping[str, str]:
        return {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}

    def encode(self, request: ModelRequest, endpoint: Endpoint, learned: Adaptations) -> bytes:
        quirks = endpoint.quirks
        scope = endpoint.scope(request.model)
        images = "images" not in learned.refused and not quirks.string_content
        writer = _Writer(scope, quirks, images=images)
        said = encoding.written(request, f"chat|{scope}|{images:d}", writer.message, _in_order)
        messages = [said.beginning, *_in_order(said.messages, said.forms)]
        if request.instructions:
            messages.insert(0, encode({"role": "system", "content": clean(request.instructions)}))
        lists = {"messages": messages}
        if request.tools.tools:
            lists["tools"] = [encoding.encoded_tools(request.tools, _TOOLS_KEY, _tool)]
        return encoding.body(_options(request, quirks, learned), **lists)

    def read(self, request: ModelRequest, endpoint: Endpoint, emit: Emit) -> ChatReading:
        return ChatReading(request, endpoint, emit)


def _options(request: ModelRequest, quirks: Quirks, learned: Adaptations) -> JsonObject:
    refused = learned.refused
    name = request.model.rpartition("/")[2]
    samples = not encoding.is_reasoner(request.model)
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
        options["prompt_cache_key"] = encoding.opaque(request.thread)
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


def _in_order(_messages: Sequence[Message], forms: Sequence[bytes]) -> list[bytes]:
    """The messages, with all results of a round before anything else that came with them."""
    ordered: list[bytes] = []
    after: list[bytes] = []
    for form in forms:
        if _AFTER in form:
            form, _, rest = form.partition(_AFTER)
            after.append(rest)
        elif after and not form.startswith(_RESULT):
            ordered += after
            after.clear()
        ordered.append(form)
    return ordered + after


class _Writer:
    """Writes messages for one scope. A message becomes one wire message or several."""

    def __init__(self, scope: str, quirks: Quirks, *, images: bool) -> None:
        self._scope = scope
        self._quirks = quirks
        self._images = images

    def message(self, message: Message) -> bytes:
        if message.role == "assistant":
            return b",".join(encode(m) for m in self._assistant(message))
        results, rest = self._user(message)
        written = [b",".join(encode(m) for m in part) for part in (results, rest) if part]
        return _AFTER.join(written)

    def _assistant(self, message: Message) -> list[JsonObject]:
        text = encoding.texts(message)
        calls = [self._call(c) for c in message.calls]
        body: JsonObject = {"role": "assistant", "content": text if text.strip() else None}
        if calls:
            body["tool_calls"] = calls
        elif not text.strip():
            body["content"] = "(empty)"
        if self._quirks.replay_reasoning:
            body["reasoning_content"] = ""
        for item in message.items:
            if (
                isinstance(item, Reasoning)
                and (kept := item.provider_data)
                and kept.is_for(KIND, self._scope)
            ):
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
        if (kept := call.provider_data) and kept.is_for(KIND, self._scope):
            body |= kept.data
        return body

    def _user(self, message: Message) -> tuple[list[JsonObject], list[JsonObject]]:
        """One `tool` message for each result; what they cannot hold and the rest in a user message."""
        results: list[JsonObject] = []
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
                    results.append(
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
        if results and not media and not own:
            return results, []
        return results, [{"role": "user", "content": self._parts(media + own)}]

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
            return encoding.call_id(id)
        return hashlib.sha1(clean(id).encode(), usedforsecurity=False).hexdigest()[:9]


_AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
