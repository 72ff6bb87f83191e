"""Tool schemas as providers accept them. The catalogue keeps what the server wrote; this makes the copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from nanobot.narrow import list_of, object_of

JsonObject = dict[str, Any]
_COMBINATORS: Final = ("allOf", "anyOf", "oneOf")
_NOT_AT_ROOT: Final = ("$schema", "$id", *_COMBINATORS)


def accepted_schema(schema: object) -> JsonObject:
    """An object schema with `properties`, which is what every provider demands of a tool.

    Alternatives at the root are merged: all properties of any branch, required what every branch requires
    (for `allOf`: what any branch requires). Anything that is no object schema becomes the empty one.
    """
    if not isinstance(schema, Mapping):
        return _empty()
    given = cast("Mapping[str, Any]", schema)
    if given.get("type", "object") != "object":
        return _empty()
    properties = dict(object_of(given.get("properties")))
    required = _names(given.get("required"))
    for combinator in _COMBINATORS:
        branches = [object_of(branch) for branch in list_of(given.get(combinator))]
        if not branches:
            continue
        demands = [_names(branch.get("required")) for branch in branches]
        for branch in branches:
            for name, property_ in object_of(branch.get("properties")).items():
                properties.setdefault(name, property_)
        first, *rest = demands
        both = set(first).union(*rest) if combinator == "allOf" else set(first).intersection(*rest)
        required += [name for demand in demands for name in demand if name in both]
    accepted: JsonObject = {key: value for key, value in given.items() if key not in _NOT_AT_ROOT}
    accepted["type"] = "object"
    accepted["properties"] = properties
    if required:
        accepted["required"] = list(dict.fromkeys(required))
    return accepted


def _empty() -> JsonObject:
    return {"type": "object", "properties": {}}


def _names(value: object) -> list[str]:
    return [name for name in list_of(value) if isinstance(name, str)]
