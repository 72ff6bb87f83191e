"""The smallest value that a JSON Schema accepts, as far as its plain keywords go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

_DEPTH: Final = 12


def sample(schema: Mapping[str, Any], depth: int = 0) -> Any:
    """A value for `schema`: its constant, default or first choice, else the emptiest of its type."""
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if choices := cast("Sequence[Any]", schema.get("enum") or ()):
        return choices[0]
    for name in ("anyOf", "oneOf", "allOf"):
        if options := cast("Sequence[Mapping[str, Any]]", schema.get(name) or ()):
            return sample(options[0], depth + 1)
    kind: Any = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = cast("list[Any]", kind)[0]
    match kind:
        case "object":
            return _sample_object(schema, depth)
        case "array":
            item = cast("Mapping[str, Any]", schema.get("items") or {})
            return [sample(item, depth + 1) for _ in range(min(int(schema.get("minItems", 0)), 10))]
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case "null":
            return None
        case _:
            return "demo".ljust(int(schema.get("minLength", 0)), ".")


def _sample_object(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = cast("Mapping[str, Mapping[str, Any]]", schema.get("properties") or {})
    required = cast("Sequence[str]", schema.get("required") or ())
    if depth > _DEPTH:
        return {}
    return {name: sample(properties.get(name, {}), depth + 1) for name in required}
