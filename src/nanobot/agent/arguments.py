"""From the argument text of a model to one JSON object, or to an explanation the model can act on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

LONGEST_ARGUMENTS: Final = 1024 * 1024
"""Bytes of argument text; more is refused unread."""


class BadArguments(Exception):
    """`str()` is the error result for the model: what is wrong, where, and what is required."""


def read_arguments(text: str, *, tool: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call of `tool`. Raises `BadArguments`; nothing is ever repaired by guessing.

    Accepted besides an object: nothing or `null`; a string that holds an object; an object whose only key is
    `arguments`, holding the real ones, if the tool has no such parameter. Models of all makers do each.
    """
    if len(text) > LONGEST_ARGUMENTS:
        raise BadArguments(
            f"{tool}: the arguments are {len(text)} characters long, at most {LONGEST_ARGUMENTS} are taken. "
            "The tool was not run; pass less at once."
        )
    if not text or text.isspace():
        return {}
    try:
        value = msgspec.json.decode(text)
        if isinstance(value, str):
            value = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as e:
        problem = f"{e} after {len(text)} characters" if "truncated" in str(e) else str(e)
        raise _refused(tool, schema, text, problem) from e
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _refused(tool, schema, text, f"got {_kind(value)}")
    return _unwrapped(cast("dict[str, Any]", value), schema)


def _kind(value: object) -> str:
    match value:
        case list():
            return "an array"
        case str():
            return "a string"
        case bool():
            return "a boolean"
        case _:
            return "a number"


def _unwrapped(arguments: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    if arguments.keys() != {"arguments"} or "arguments" in (schema.get("properties") or {}):
        return arguments
    inner = arguments["arguments"]
    if isinstance(inner, str):
        try:
            inner = msgspec.json.decode(inner)
        except msgspec.DecodeError:
            return arguments
    return cast("dict[str, Any]", inner) if isinstance(inner, dict) else arguments


def _refused(tool: str, schema: Mapping[str, Any], text: str, problem: str) -> BadArguments:
    required = ", ".join(str(name) for name in schema.get("required") or ()) or "none"
    return BadArguments(
        f"{tool}: arguments must be one JSON object ({problem}). The tool was not run. "
        f"Received: {text[:200]!r}. Required parameters: {required}."
    )
