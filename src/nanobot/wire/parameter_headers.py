"""Arguments that a modern server wants to see in headers too: `x-mcp-header` in a tool's input schema.

{"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}   →   Mcp-Param-Region: eu
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from nanobot.wire.header_values import header_text, header_value
from nanobot.wire.rpc import HEADER_MISMATCH, Payload, RpcError

MARK: Final = "x-mcp-header"
MAX_DEPTH: Final = 32

Path = tuple[str, ...]
Places = Mapping[str, Path]
"""Where in the arguments the value of each header stands; names as the schema spells them."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_PRIMITIVE = ("string", "integer", "boolean")


class _Tool(msgspec.Struct):
    name: str = ""
    inputSchema: Any = None


class _Tools(msgspec.Struct):
    tools: list[_Tool] = []


def places_in(schema: Any) -> Places:
    """The arguments that an input schema wants in headers. Nothing of a schema with a `fault`."""
    marked = tuple(_marked(schema, ()))
    return {} if _fault(marked) else {str(name): path for path, name, _ in marked}


def fault(schema: Any) -> str:
    """Why a tool with this input schema must not be called over HTTP: its marks are broken. "": it may."""
    return _fault(tuple(_marked(schema, ())))


def check(places: Places, arguments: Any, headers: Mapping[bytes, bytes]) -> None:
    """Raises `RpcError` (-32020) unless each header says what its argument says, and both or neither do.

    `headers` have lower-case names.
    """
    for name, path in places.items():
        header = f"mcp-param-{name}".lower()
        sent = headers.get(header.encode())
        value = _at(arguments, path)
        if not (sent is None if _text(value) is None else _says(header_value(sent), value)):
            raise RpcError(HEADER_MISMATCH, f"header {header} does not match argument {'.'.join(path)}")


class ParameterHeaders:
    """What is known of the tools of one server; fed with every page of its list that passes by."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[str, Places] = {}

    def learn(self, page: Payload) -> None:
        """Take note of a `tools/list` result. Tools without such parameters cost nothing."""
        if MARK.encode() not in page.raw and not self._places:
            return
        try:
            tools = msgspec.json.decode(page.raw, type=_Tools).tools
        except msgspec.DecodeError:
            return
        for tool in tools:
            self._places.pop(tool.name, None)
            if places := places_in(tool.inputSchema):
                self._places[tool.name] = places

    def of(self, tool: str, params: Payload) -> Mapping[str, str]:
        """The headers that a call of `tool` with these `tools/call` params must carry."""
        places = self._places.get(tool)
        if not places:
            return {}
        try:
            arguments = params.object().get("arguments")
        except RpcError:
            return {}
        texts = {name: _text(_at(arguments, path)) for name, path in places.items()}
        return {f"Mcp-Param-{name}": header_text(text) for name, text in texts.items() if text is not None}


def _marked(schema: Any, path: Path) -> Iterator[tuple[Path, Any, Any]]:
    """The marked properties below `schema`, reached through `properties` alone: path, mark and type."""
    if not isinstance(schema, dict) or len(path) > MAX_DEPTH:
        return
    if path and MARK in schema:
        yield path, schema[MARK], schema.get("type")  # pyright: ignore[reportUnknownMemberType]
    properties: Any = schema.get("properties")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if isinstance(properties, dict):
        for key, inner in properties.items():  # pyright: ignore[reportUnknownVariableType]
            yield from _marked(inner, (*path, str(key)))  # pyright: ignore[reportUnknownArgumentType]


def _fault(marked: Sequence[tuple[Path, Any, Any]]) -> str:
    seen: set[str] = set()
    for path, name, kind in marked:
        where = ".".join(path)
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            return f"{MARK} of {where} is no name of a header"
        if kind not in _PRIMITIVE:
            return f"{MARK} of {where} stands on something else than a string, an integer or a boolean"
        if name.lower() in seen:
            return f"{MARK} of {where} is used twice"
        seen.add(name.lower())
    return ""


def _at(value: Any, path: Path) -> Any:
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return value  # pyright: ignore[reportUnknownVariableType]


def _text(value: Any) -> str | None:
    """A scalar as a header spells it; None for anything else."""
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case _:
            return None


def _says(text: str | None, value: Any) -> bool:
    """Whether a header and an argument mean the same; a number may be spelled in several ways."""
    if text is None or isinstance(value, str | bool):
        return text == _text(value)
    return _NUMBER.fullmatch(text) is not None and float(text) == value
