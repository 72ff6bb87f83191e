"""The documents a person writes as JSON Schema, for editors: made from the table of keys and their sentences.

What one document may hold is what the schema says. What only all documents together tell stays with
`nanobot config check`: references, keys that another document may bring, the range of a written-out duration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

from nanobot.config import keys
from nanobot.config.diagnostics import Place
from nanobot.config.help import HELP
from nanobot.config.places import Origin
from nanobot.config.shapes import (
    DURATION,
    REPLACE,
    Duration,
    Flag,
    Free,
    Ignored,
    Later,
    ListOf,
    MapOf,
    Names,
    Number,
    Shape,
    Table,
    Text,
    TextOr,
    spellings,
)

Kind = Literal["nanobot", "agent", "mcp"]
Schema = dict[str, Any]

BASE: Final = "https://nanobot.dev/schemas/"
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_KINDS: Final[Mapping[Kind, tuple[str, str, Table, str]]] = {
    "nanobot": ("nanobot.schema.json", "A nanobot.yaml", keys.DOCUMENT, ""),
    "agent": (
        "agent.frontmatter.schema.json",
        "The front matter of agents/<id>.md",
        keys.AGENT_FILE,
        "agents.*",
    ),
    "mcp": ("mcp.schema.json", "An mcp.json", keys.MCP_DOCUMENT, ""),
}
"""File name below `BASE`, title, keys, and the path of these keys in `HELP`."""

_ELSEWHERE: Final = {"agents.*.id": "Has no effect; the name of the file is the agent's id."}
"""What is said of keys that a nanobot.yaml does not have."""

_KEY_RULES: Final[Mapping[Callable[[str, Origin, Place], None], Schema]] = {
    keys.check_agent_id: {"pattern": "^[^:]+$"},
    keys.check_server_name: {"pattern": "^[^:/]+$"},
    keys.check_permission: {"enum": list(keys.PERMISSIONS)},
}
"""What each check of names refuses; what it only warns of is not here."""


def document_schema(kind: Kind) -> Schema:
    """The JSON Schema (draft 2020-12) of one kind of document."""
    name, title, table, path = _KINDS[kind]
    writer = _Writer()
    root = writer.table(table, path)
    return {
        "$schema": _DIALECT,
        "$id": BASE + name,
        "title": title,
        **root,
        "type": ["object", "null"],  # an empty file
        "$defs": dict(sorted(writer.definitions.items())),
    }


class _Writer:
    """Collects a definition for every sort of value, because a value may also stand inside `$replace`."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}
        self._open: dict[int, str] = {}
        """Tables that are being written, by identity: what lies inside may refer to them."""

    def table(self, table: Table, path: str) -> Schema:
        """The keys of `table` alone. Editors suggest canonical keys; the other spellings are allowed."""
        values = {key: self._value(shape, _below(path, key)) for key, shape in table.keys.items()}
        others = {key: sorted(_spellings(table, key) - {key}) for key in values}
        return {
            "type": "object",
            "properties": values,
            "patternProperties": {
                f"^(?:{'|'.join(names)})$": values[key] for key, names in others.items() if names
            },
            "additionalProperties": False,
            "dependentSchemas": dict(_one_spelling(others)),
        }

    def _value(self, shape: Shape, path: str) -> Schema:
        """What a key or a name may hold: its sentence, and a reference to the definition of its values."""
        described = {"description": said} if (said := HELP.get(path) or _ELSEWHERE.get(path)) else {}
        if isinstance(shape, Ignored):
            return {"description": shape.why, "deprecated": True} if shape.why else described
        return {**described, "$ref": f"#/$defs/{self._defined(shape, path)}"}

    def _defined(self, shape: Shape, path: str) -> str:
        """The name of the definition of `shape` together with what may stand for any value."""
        while isinstance(shape, Later):
            shape = shape.shape()
        if (name := self._open.get(id(shape))) is not None:
            return name
        name = next((name for shared, name in _SHARED if shared == shape), path)
        if name in self.definitions:
            return name
        self._open[id(shape)] = name
        inner = self._inner(shape, path)
        del self._open[id(shape)]
        replaced: Schema = {
            "type": "object",
            "properties": {REPLACE: {"$ref": f"#/$defs/{name}"}},
            "required": [REPLACE],
            "additionalProperties": False,
        }
        self.definitions[name] = {"anyOf": [*inner, {"type": "null"}, replaced]}
        return name

    def _inner(self, shape: Shape, path: str) -> list[Schema]:
        """The alternatives of `shape` itself."""
        match shape:
            case Table(short=short):
                return [self.table(shape, path), *([_TEXT] if short else ())]
            case TextOr(other=other):
                return [_TEXT, *self._inner(other, path)]
            case MapOf(shape=value, check_key=check):
                names = {"propertyNames": _KEY_RULES[check]} if check else {}
                inner = self._value(value, _below(path, "*"))
                return [{**_MAPPING, **names, "additionalProperties": inner}]
            case ListOf(shape=item):
                return [{"type": "array", "items": self._value(item, _below(path, "*"))}]
            case _:
                return _plain(shape)


_TEXT: Final[Schema] = {"type": "string"}
_MAPPING: Final[Schema] = {"type": "object", "not": {"required": [REPLACE], "maxProperties": 1}}
"""Names of a person's choice. What holds `$replace` alone is none: it is what it replaces."""

_SHARED: Final[tuple[tuple[Shape, str], ...]] = (
    (Text(), "text"),
    (Flag(), "flag"),
    (Free(), "anything"),
    (Names(), "names"),
    (Names(split=False), "texts"),
    (MapOf(Text()), "textsByName"),
)
"""Values that many keys take."""


def _plain(shape: Shape) -> list[Schema]:
    """A shape without others inside."""
    match shape:
        case Text(words=words) if words:
            return [{"enum": list(words)}]
        case Text(pattern=pattern) if pattern:
            return [{"type": "string", "pattern": f"^(?:{pattern.pattern})$"}]
        case Text():
            return [_TEXT]
        case Flag():
            return [{"type": "boolean"}]
        case Number():
            return [_number(shape)]
        case Duration(low=low, high=high):
            return [_number(Number(low, high)), {"type": "string", "pattern": rf"^\s*(?:{DURATION})\s*$"}]
        case Names(unique=unique, words=words):
            item: Schema = (
                {"enum": list(words)} if words else {**_TEXT, **({"minLength": 1} if unique else {})}
            )
            return [{"type": "array", "items": item}, _TEXT]
        case Free():
            return [_MAPPING]
        case _:
            raise TypeError(f"{type(shape).__name__} has no JSON Schema.")


def _number(number: Number) -> Schema:
    bounds = {"minimum": number.low, "maximum": number.high}
    return {
        "type": "integer" if number.whole else "number",
        **{word: bound for word, bound in bounds.items() if math.isfinite(bound)},
    }


def _spellings(table: Table, key: str) -> set[str]:
    names = [key, *(alias for alias, meant in table.aliases.items() if meant == key)]
    return {spelling for name in names for spelling in spellings(name)}


def _one_spelling(others: Mapping[str, list[str]]) -> Iterator[tuple[str, Schema]]:
    """For each further spelling: those it must not stand beside."""
    for key, names in others.items():
        for index, name in enumerate(names):
            yield name, {"properties": dict.fromkeys([key, *names[:index]], False)}


def _below(path: str, key: str) -> str:
    """The path of `key`. A profile holds what a document holds."""
    if path == "profiles.*":
        return key
    return f"{path}.{key}" if path else key
