"""An MCP server inside this process: async functions as tools, seen through the same seam as every server."""

from __future__ import annotations

import base64
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from nanobot.errors import NanobotError
from nanobot.watchers import Watchers
from nanobot.wire.call import NOBODY, Call, Caller
from nanobot.wire.rpc import INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND, Payload, RpcError
from nanobot.wire.source import Changed, Entry, Kind, Told

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator, ValidationError

log = logging.getLogger(__name__)

_RESULT_MEMBERS: Final = frozenset({"content", "structuredContent", "isError", "_meta"})
_MAX_REASON: Final = 300
"""Characters of a complaint about an argument; it quotes the argument."""


class ToolFailed(NanobotError):
    """A tool could not do what was asked. The message is what the model reads."""

    code = "tool.failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLink:
    """A tool's answer that points to a resource."""

    uri: str
    name: str
    description: str = ""
    mime_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinTool:
    """A tool. `schema` is the JSON Schema (object) of its arguments; they are checked before `run`.

    `run(arguments, call)` gives text (`str`), an object (`dict`: text and structured content), a
    `ResourceLink`, any other JSON value (as text), or a whole MCP tool result: a `Payload`, or a `dict` that
    has `content` blocks and no members but those of a result. It raises `ToolFailed` for an error result.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    run: Callable[[dict[str, Any], Call], Awaitable[Any]]
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    title: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinResource:
    """A resource. `read` gives text or bytes; it raises `NotFound` when there is nothing any more."""

    uri: str
    name: str
    read: Callable[[Call], Awaitable[str | bytes]]
    description: str = ""
    mime_type: str = ""


class BuiltinServer:
    """A `Source` over functions of our own; many calls at once."""

    def __init__(
        self, name: str, tools: Sequence[BuiltinTool], *, resources: Sequence[BuiltinResource] = ()
    ) -> None:
        self._name = name
        self._tools = {tool.name: _Tool(tool) for tool in sorted(tools, key=lambda tool: tool.name)}
        self._resources = {res.uri: res for res in sorted(resources, key=lambda res: res.uri)}
        self._watchers = Watchers[Kind, str]()

    @property
    def name(self) -> str:
        return self._name

    async def listing(self, kind: Kind, caller: Caller = NOBODY) -> Sequence[Entry]:
        match kind:
            case "tools":
                return [tool.entry for tool in self._tools.values()]
            case "resources":
                return [Entry(uri, Payload.of(_resource(res))) for uri, res in self._resources.items()]
            case "prompts" | "templates":
                return ()

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        match method:
            case "tools/call":
                asked = _read(_call, params)
                tool = self._tools.get(asked.name)
                if tool is None:
                    raise RpcError(INVALID_PARAMS, f"unknown tool {asked.name}")
                return await tool.call(asked.arguments or {}, call)
            case "resources/read":
                return await self._read_resource(_read(_resource_read, params).uri, call)
            case _:
                raise RpcError(METHOD_NOT_FOUND, f"{method}: {self._name} has no such method")

    def watch(self, changed: Changed) -> Callable[[], None]:
        return self._watchers.add(changed)

    def hear(self, told: Told) -> Callable[[], None]:
        return lambda: None

    def replace_tools(self, tools: Sequence[BuiltinTool]) -> None:
        """Offer other tools from now on, and say so."""
        self._tools = {tool.name: _Tool(tool) for tool in sorted(tools, key=lambda tool: tool.name)}
        self._changed("tools")

    def replace_resources(self, resources: Sequence[BuiltinResource]) -> None:
        """Offer other resources from now on, and say so."""
        self._resources = {res.uri: res for res in sorted(resources, key=lambda res: res.uri)}
        self._changed("resources")

    def _changed(self, kind: Kind) -> None:
        self._watchers.tell(kind, "")

    async def _read_resource(self, uri: str, call: Call) -> Payload:
        resource = self._resources.get(uri)
        if resource is None:
            raise RpcError(RESOURCE_NOT_FOUND, f"unknown resource {uri!r}", Payload.of({"uri": uri}))
        body = await resource.read(call)
        content = {"uri": uri} | ({"mimeType": resource.mime_type} if resource.mime_type else {})
        if isinstance(body, str):
            content["text"] = body
        else:
            content["blob"] = base64.b64encode(body).decode()
        return Payload.of({"contents": [content]})


class _Tool:
    """One tool, its listed definition and its compiled schema (made at the first call)."""

    def __init__(self, tool: BuiltinTool) -> None:
        self._tool = tool
        properties: Mapping[str, Any] = tool.schema.get("properties", {})
        self._known = frozenset(properties)
        self._whole = frozenset(name for name, kind in properties.items() if kind.get("type") == "integer")
        self._validator: Draft202012Validator | None = None
        self.entry = Entry(tool.name, Payload.of(_definition(tool)))

    async def call(self, arguments: dict[str, Any], call: Call) -> Payload:
        name = self._tool.name
        if not self._known.issuperset(arguments):  # user interfaces send more than a tool asks for
            extra = sorted(arguments.keys() - self._known)
            log.debug("arguments ignored", extra={"tool": name, "arguments": extra})
            arguments = {key: value for key, value in arguments.items() if key in self._known}
        for key in self._whole & arguments.keys():
            value = arguments[key]
            if isinstance(value, float) and value.is_integer():  # 3.0 is an integer to JSON Schema
                arguments[key] = int(value)
        if (complaint := self._complaint(arguments)) is not None:
            return _failure(complaint)
        try:
            return _result(await self._tool.run(arguments, call))
        except RpcError:
            raise
        except NanobotError as e:
            return _failure(str(e))
        except OSError as e:
            where = f": {e.filename}" if e.filename else ""
            return _failure(f"{e.strerror or type(e).__name__}{where}")

    def _complaint(self, arguments: dict[str, Any]) -> str | None:
        """What is wrong with the arguments; None if they fit the schema."""
        if self._validator is None:
            from jsonschema_rs import Draft202012Validator  # takes 30 ms; not before the first call

            self._validator = Draft202012Validator(dict(self._tool.schema))
        if self._validator.is_valid(arguments):
            return None
        return f"{self._tool.name}: {_explain(next(self._validator.iter_errors(arguments)))}"


def _explain(error: ValidationError) -> str:
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
    reason = error.message if len(error.message) <= _MAX_REASON else error.message[:_MAX_REASON] + "…"
    return f"argument {place.removeprefix('.')}: {reason}" if place else reason


def _result(answer: Any) -> Payload:
    match answer:
        case str():
            return Payload(_encode({"content": [{"type": "text", "text": answer}]}))
        case Payload():
            return answer
        case ResourceLink():
            link = {"type": "resource_link", "uri": answer.uri, "name": answer.name}
            if answer.description:
                link["description"] = answer.description
            if answer.mime_type:
                link["mimeType"] = answer.mime_type
            return Payload(_encode({"content": [link]}))
        case dict():
            answer = cast("dict[str, Any]", answer)
            if _is_result(answer):
                return Payload(_encode(answer))
            raw = _encode(answer)
            content = [{"type": "text", "text": raw.decode()}]
            return Payload(_encode({"content": content, "structuredContent": msgspec.Raw(raw)}))
        case _:
            return Payload(_encode({"content": [{"type": "text", "text": _encode(answer).decode()}]}))


def _is_result(answer: dict[str, Any]) -> bool:
    content = answer.get("content")
    if not isinstance(content, list) or not _RESULT_MEMBERS.issuperset(answer):
        return False
    return all(isinstance(block, dict) and "type" in block for block in cast("list[Any]", content))


def _failure(message: str) -> Payload:
    return Payload(_encode({"content": [{"type": "text", "text": message}], "isError": True}))


def _definition(tool: BuiltinTool) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {},
        **tool.schema,
        "additionalProperties": False,
    }
    definition: dict[str, Any] = {"name": tool.name, "description": tool.description, "inputSchema": schema}
    if tool.title:
        definition["title"] = tool.title
    if tool.annotations:
        definition["annotations"] = dict(tool.annotations)
    if tool.meta:
        definition["_meta"] = dict(tool.meta)
    return definition


def _resource(resource: BuiltinResource) -> dict[str, Any]:
    definition = {"uri": resource.uri, "name": resource.name}
    if resource.description:
        definition["description"] = resource.description
    if resource.mime_type:
        definition["mimeType"] = resource.mime_type
    return definition


class _Call(msgspec.Struct):
    name: str
    arguments: dict[str, Any] | None = None


class _ResourceRead(msgspec.Struct):
    uri: str


_T = TypeVar("_T")
_encode = msgspec.json.Encoder().encode
_call = msgspec.json.Decoder(_Call)
_resource_read = msgspec.json.Decoder(_ResourceRead)


def _read(decoder: msgspec.json.Decoder[_T], params: Payload) -> _T:
    try:
        return decoder.decode(params.raw)
    except (msgspec.DecodeError, RecursionError) as e:
        raise RpcError(INVALID_PARAMS, f"bad request: {e}") from e
