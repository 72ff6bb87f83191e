"""Reading JSON of others, of which nothing is certain: what is not of the wanted kind counts as empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def object_of(value: object) -> Mapping[str, Any]:
    """`value` if it is a JSON object, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def list_of(value: object) -> list[object]:
    """`value` if it is a JSON array, else an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def objects_of(value: object) -> list[Mapping[str, Any]]:
    """The JSON objects in `value`, if it is an array; what else is in it is left out."""
    return [cast("Mapping[str, Any]", item) for item in list_of(value) if isinstance(item, Mapping)]
