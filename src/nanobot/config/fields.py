"""Fields: the short way to write the shape of an answer, turned into a JSON Schema.

The end of a field's name says its type: `x` text, `x(int)`, `x(float)`, `x(bool)`, `x(a, b)` one of some
words, and `[]` after any of them a list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nanobot.config.diagnostics import Place
from nanobot.config.nodes import Entries, Entry, Scalar

_NAME = re.compile(r"(?P<bare>[^()\[\]]+?)\s*(?:\((?P<type>[^()]*)\))?\s*(?P<list>\[\])?")
_TYPES = {
    "int": "integer",
    "integer": "integer",
    "float": "number",
    "number": "number",
    "bool": "boolean",
    "boolean": "boolean",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field with its JSON Schema `property`."""

    name: str
    description: str
    required: bool
    property: Mapping[str, Any]


def object_schema(fields: Mapping[str, Entry], place: Place) -> dict[str, Any]:
    """The JSON Schema of an object with exactly these fields."""
    read = read_fields(fields, place)
    return {
        "type": "object",
        "properties": {field.name: dict(field.property) for field in read},
        "required": [field.name for field in read if field.required],
        "additionalProperties": False,
    }


def read_fields(fields: Mapping[str, Entry], place: Place) -> list[Field]:
    """The fields in the order they were written; a bare name used twice is reported."""
    read: dict[str, Field] = {}
    for written, entry in fields.items():
        field = _read(written, entry, place.key(written))
        if field is not None and read.setdefault(field.name, field) is not field:
            place.key(written).error("bad-value", entry.key_at, f"Two fields are named {field.name!r}.")
    return list(read.values())


def _read(written: str, entry: Entry, place: Place) -> Field | None:
    match = _NAME.fullmatch(written.strip())
    if match is None:
        place.error(
            "bad-value",
            entry.key_at,
            "A field is named `x`, `x(int)`, `x(a, b)`, with `[]` after it for a list.",
        )
        return None
    about = entry.node.entries if isinstance(entry.node, Entries) else {}
    description = _value(about, "description", "")
    nested = about["fields"].node if "fields" in about else None
    kind = match["type"]
    property: dict[str, Any]
    if isinstance(nested, Entries):
        if kind is not None:
            place.error(
                "bad-value", entry.key_at, "A field with `fields` is an object and takes no other type."
            )
        property = object_schema(nested.entries, place.key("fields"))
    elif kind is None:
        property = {"type": "string"}
    elif "," in kind:
        property = {"type": "string", "enum": [word.strip() for word in kind.split(",") if word.strip()]}
    elif kind.strip() in _TYPES:
        property = {"type": _TYPES[kind.strip()]}
    else:
        hint = "known: int, float, bool, or words with commas between"
        place.error("bad-value", entry.key_at, "The field's type is not known.", hint)
        return None
    if match["list"]:
        property = {"type": "array", "items": property}
    if description:
        property["description"] = description
    return Field(match["bare"].strip(), description, _value(about, "required", True), property)


def _value(about: Mapping[str, Entry], key: str, default: Any) -> Any:
    node = about[key].node if key in about else None
    return node.value if isinstance(node, Scalar) else default
