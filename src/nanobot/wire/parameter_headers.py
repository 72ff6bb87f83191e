"""Arguments that a modern server wants to see in headers too: `x-mcp-header` in a tool's input schema.

{"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}   →   Mcp-Param-Region: eu
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from nanobot.wire.rpc import Payload, RpcError

MARK: Final = "x-mcp-header"
MAX_DEPTH: Final = 32

Path = tuple[str, ...]

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
_WRAPPED = re.compile(r"=\?base64\?.*\?=")


class _Tool(msgspec.Struct):
    name: str = ""
    inputSchema: Any = None


class _Tools(msgspec.Struct):
    tools: list[_Tool] = []


class ParameterHeaders:
    """What is known of the tools of one server; fed with every page of its list that passes by."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[str, dict[str, Path]] = {}

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
            if places := {name: path for path, name in _marked(tool.inputSchema, ())}:
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


def header_text(value: str) -> str:
    """`value` as a header can carry it: as it is if it survives that, else wrapped in base64."""
    if _PRINTABLE.fullmatch(value) and value == value.strip() and not _WRAPPED.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def _marked(schema: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """The marked properties below `schema`, reached through `properties` alone."""
    if not isinstance(schema, dict) or len(path) > MAX_DEPTH:
        return
    name: Any = schema.get(MARK)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if path and isinstance(name, str) and _TOKEN.fullmatch(name):
        yield path, name
    properties: Any = schema.get("properties")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if isinstance(properties, dict):
        for key, inner in properties.items():  # pyright: ignore[reportUnknownVariableType]
            yield from _marked(inner, (*path, str(key)))  # pyright: ignore[reportUnknownArgumentType]


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
