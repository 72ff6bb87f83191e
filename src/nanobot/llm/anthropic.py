"""The Messages dialect: Anthropic's interface."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from nanobot.llm import encoding
from nanobot.llm.anthropic_answer import KIND, AnthropicReading
from nanobot.llm.content import (
    AudioPart,
    FilePart,
    ImagePart,
    Part,
    TextPart,
    arguments_of,
    clean,
    encode,
    parts_of,
)
from nanobot.llm.endpoint import Adaptations, Endpoint
from nanobot.llm.messages import (
    Content,
    JsonObject,
    Message,
    ProviderData,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolOutput,
)
from nanobot.llm.model import Emit, ModelRequest, ToolSpec

VERSION: Final = "2023-06-01"
_TOOLS_KEY: Final = "anthropic"
_OPENING: Final[Mapping[Role, bytes]] = {
    "user": b'{"role":"user","content":[',
    "assistant": b'{"role":"assistant","content":[',
}
_RESULT: Final = b'{"type":"tool_result"'
_MARK: Final = b',"cache_control":{"type":"ephemeral"}}'
_MIN_CACHED_BYTES: Final = 3700
"""Below about 1024 tokens a provider caches nothing."""
_DEFAULT_LIMIT: Final = 8192
_LARGEST_DEFAULT: Final = 32_000
_CLAUDE = re.compile(r"claude-(opus|sonnet|haiku|fable|mythos)-(\d{1,2})(?:-(\d{1,2}))?(?!\d)")
_BUDGET: Final = {"low": 1024, "medium": 4096, "high": 8192, "xhigh": 16384, "max": 16384}


class AnthropicMessages:
    """`POST <base>/messages`, always streaming. A base URL may end in `/v1` or not."""

    path = "/messages"
    models_path = "/models?limit=1000"

    def headers(self, endpoint: Endpoint) -> Mapping[str, str]:
        headers = {"anthropic-version": VERSION}
        if endpoint.api_key:
            headers["x-api-key"] = endpoint.api_key
        return headers

    def encode(self, request: ModelRequest, endpoint: Endpoint, learned: Adaptations) -> bytes:
        scope = endpoint.scope(request.model)
        images = "images" not in learned.refused
        writer = _Writer(scope, images=images)
        # Two turns stay open: the cache mark of the request before stands in the last but one.
        key = f"anthropic|{scope}|{images:d}"
        said = encoding.written(request, key, writer.message, _as_turns, open_turns=2)
        roles, contents = _turns(said.messages, said.forms)
        options = _options(request, learned, may_think=_may_think(contents))
        system = (
            [encode({"type": "text", "text": clean(request.instructions)})] if request.instructions else []
        )
        tools = encoding.encoded_tools(request.tools, _TOOLS_KEY, _tool) if request.tools.tools else b""
        if endpoint.quirks.prompt_cache:
            size = len(tools) + sum(map(len, system)) + len(said.beginning) + sum(map(len, contents))
            if size >= _MIN_CACHED_BYTES:
                tools = _marked(tools)
                system = [_marked(s) for s in system]
                _mark_newest(roles, contents)
        lists: dict[str, Sequence[bytes]] = {"messages": [said.beginning, *_framed(roles, contents)]}
        if system:
            lists["system"] = system
        if tools:
            lists["tools"] = [tools]
        return encoding.body(options, **lists)

    def read(self, request: ModelRequest, endpoint: Endpoint, emit: Emit) -> AnthropicReading:
        return AnthropicReading(request, endpoint, emit)


def _options(request: ModelRequest, learned: Adaptations, *, may_think: bool) -> JsonObject:
    version = _version(request.model)
    limit = learned.limit(request.max_tokens or _default_limit(version)) or _DEFAULT_LIMIT
    options: JsonObject = {"model": request.model, "max_tokens": limit, "stream": True}
    thinking = _thinking(request.effort, version, limit, learned.max_tokens)
    kind = thinking.get("thinking", {}).get("type", "disabled")
    if kind == "enabled" and not may_think:
        thinking, kind = {}, "disabled"
    options |= thinking
    if kind == "disabled" and not _refuses_sampling(version):
        if "temperature" not in learned.refused:
            options["temperature"] = request.temperature
        if "top_p" not in learned.refused:
            options["top_p"] = request.top_p
    if request.stop:
        options["stop_sequences"] = [s for s in request.stop if s.strip()]
    if request.tools.tools and request.tool_choice:
        options["tool_choice"] = _choice(request.tool_choice, may_force=kind == "disabled")
    if request.output:
        config: JsonObject = options.get("output_config", {})
        form = {"type": "json_schema", "schema": request.output.schema}
        options["output_config"] = {**config, "format": form}
    return options


def _choice(choice: str, *, may_force: bool) -> JsonObject:
    match choice:
        case "auto" | "none":
            return {"type": choice}
        case _ if not may_force:  # a model that thinks must not be forced
            return {"type": "auto"}
        case "required":
            return {"type": "any"}
        case _:
            return {"type": "tool", "name": choice}


Version = tuple[str, int, int] | None
"""(family, major, minor) of a Claude model."""


def _version(model: str) -> Version:
    found = _CLAUDE.search(model)
    return (found[1], int(found[2]), int(found[3] or 0)) if found else None


def _adapts_effort(version: Version) -> bool:
    """Whether the model decides itself how much to think, given an effort instead of a token budget."""
    if version is None:
        return False
    family, major, minor = version
    return major >= 5 or (family == "opus" and (major, minor) >= (4, 7))


_refuses_sampling = _adapts_effort  # the generation that adapts its effort takes no temperature any more


def _default_limit(version: Version) -> int:
    return _LARGEST_DEFAULT if version and version[1] >= 4 else _DEFAULT_LIMIT


def _thinking(effort: str | None, version: Version, limit: int, largest: int | None) -> JsonObject:
    """The fields that make a model think; {} leaves it to the provider."""
    if effort is None:
        return {}
    if _adapts_effort(version):
        if effort == "none":
            thinks_by_itself = version is not None and version[0] in ("opus", "sonnet") and version[1] >= 5
            return {"thinking": {"type": "disabled"}} if thinks_by_itself else {}
        level = {"minimal": "low", "adaptive": None}.get(effort, effort)
        adaptive: JsonObject = {"thinking": {"type": "adaptive"}}
        return adaptive if level is None else {**adaptive, "output_config": {"effort": level}}
    if effort == "adaptive":
        return {"thinking": {"type": "adaptive"}}
    budget = _BUDGET.get(effort)
    if budget is None:
        return {}
    if budget >= limit:
        limit = budget + 4096 if largest is None else min(budget + 4096, largest)
        budget = min(budget, limit - 1)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}, "max_tokens": limit}


def _tool(tool: ToolSpec) -> JsonObject:
    if tool.extensions.get("type", "custom") not in ("", "custom"):  # a tool the provider defines itself
        return {"name": tool.name}
    return {"name": tool.name, "description": tool.description, "input_schema": tool.schema}


def _turns(messages: Sequence[Message], blocks: Sequence[bytes]) -> tuple[list[Role], list[bytes]]:
    """Roles and content blocks with neighbours of one role joined, results before anything else."""
    roles: list[Role] = []
    contents: list[bytes] = []
    neighbours: list[bytes] = []
    previous = ""
    for message, content in zip(messages, blocks, strict=True):
        role = message.role
        if role != previous:
            roles.append(role)
            contents.append(content)
            previous = role
            neighbours = [content]
        else:
            neighbours.append(content)
            neighbours.sort(key=lambda c: not c.startswith(_RESULT))
            contents[-1] = b",".join(neighbours)
    return roles, contents


def _as_turns(messages: Sequence[Message], blocks: Sequence[bytes]) -> list[bytes]:
    return _framed(*_turns(messages, blocks))


def _framed(roles: Sequence[Role], contents: Sequence[bytes]) -> list[bytes]:
    return [_OPENING[role] + content + b"]}" for role, content in zip(roles, contents, strict=True)]


def _may_think(contents: Sequence[bytes]) -> bool:
    """Whether thinking may be on: an answer whose results are sent now must begin with its thinking.

    It does not after the model was switched in the middle of a tool loop.
    """
    if len(contents) < 2 or not contents[-1].startswith(_RESULT):
        return True
    return contents[-2].startswith((b'{"type":"thinking"', b'{"type":"redacted_thinking"'))


def _mark_newest(roles: Sequence[Role], contents: list[bytes]) -> None:
    """Let the provider cache up to the newest block, and find what it cached for the request before."""
    newest = [at for at in range(max(0, len(roles) - 3), len(roles)) if roles[at] == "user"]
    for at in newest[-2:]:
        contents[at] = _marked(contents[at])


def _marked(objects: bytes) -> bytes:
    """`objects` with a cache mark in the last one."""
    return objects[:-1] + _MARK if objects else objects


class _Writer:
    """Writes the content blocks of messages, for one scope."""

    def __init__(self, scope: str, *, images: bool) -> None:
        self._scope = scope
        self._images = images

    def message(self, message: Message) -> bytes:
        blocks = self._assistant(message) if message.role == "assistant" else self._user(message)
        return b",".join(encode(b) for b in blocks)

    def _assistant(self, message: Message) -> list[JsonObject]:
        blocks: list[JsonObject] = []
        for item in message.items:
            match item:
                case Text(_, text) if text.strip():
                    blocks.append({"type": "text", "text": clean(text).rstrip()})
                case ToolCall():
                    blocks.append(
                        {
                            "type": "tool_use",
                            "id": encoding.call_id(item.call_id),
                            "name": item.name,
                            "input": arguments_of(item.arguments) or {},
                        }
                    )
                case Reasoning(provider_data=ProviderData() as kept) if kept.is_for(KIND, self._scope):
                    blocks.append(kept.data)
                case _:
                    pass
        return blocks or [{"type": "text", "text": "(empty)"}]

    def _user(self, message: Message) -> list[JsonObject]:
        results: list[JsonObject] = []
        rest: list[JsonObject] = []
        for item in message.items:
            match item:
                case ToolOutput():
                    results.append(self._result(item))
                case Text(_, text):
                    rest += [_part(p) for p in parts_of([{"type": "text", "text": text}])]
                case Content(_, body):
                    rest += [_part(p) for p in parts_of([body], images=self._images)]
                case _:
                    pass
        return results + rest or [{"type": "text", "text": "(empty)"}]

    def _result(self, result: ToolOutput) -> JsonObject:
        content = [_part(p) for p in parts_of(result.content, images=self._images)]
        body: JsonObject = {"type": "tool_result", "tool_use_id": encoding.call_id(result.call_id)}
        body["content"] = content or [{"type": "text", "text": "(empty)"}]
        if result.is_error:
            body["is_error"] = True
        return body


def _part(part: Part) -> JsonObject:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ImagePart(mime, data):
            return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}
        case AudioPart(mime, _):
            return {"type": "text", "text": f"[audio {mime}: this model cannot hear it]"}
        case FilePart(mime, data, name):
            source = {"type": "base64", "media_type": mime, "data": data}
            return {"type": "document", "source": source, "title": name}
