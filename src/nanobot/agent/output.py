"""Structured output: whether an answer has the shape its agent promises."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from nanobot.config.model import OutputSchema
from nanobot.errors import ConfigError
from nanobot.llm.model import OutputFormat

if TYPE_CHECKING:
    import jsonschema_rs

_FENCED: Final = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL | re.IGNORECASE)


class Mismatch(Exception):
    """The answer is not what was asked for; `str()` says where and why, for the model to repair it."""


class OutputShape:
    """The shape of one agent's final answer. Made once: compiling a schema costs more than using it."""

    def __init__(self, wanted: OutputSchema) -> None:
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", wanted.name)[:64] or "output_schema"
        self.format = OutputFormat(
            name=name, schema=wanted.schema, description=wanted.description, strict=wanted.strict
        )
        self._validator: jsonschema_rs.Validator | None = None

    def read(self, text: str) -> Any:
        """The value that `text` holds, bare or in a code fence. Raises `Mismatch`."""
        fenced = _FENCED.fullmatch(text)
        try:
            value = msgspec.json.decode(fenced[1] if fenced else text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as e:
            raise Mismatch(f"the answer is not JSON: {e}") from e
        if self.format.strict:
            # Strict providers are told that optional properties are required and nullable.
            value = _without_added_nulls(value, self.format.schema)
        error = next(self._compiled().iter_errors(value), None)
        if error is not None:
            place = "/".join(str(step) for step in error.instance_path)
            raise Mismatch(f"at {'/' + place!r}: {error.message}")
        return value

    def _compiled(self) -> jsonschema_rs.Validator:
        if self._validator is None:
            import jsonschema_rs

            try:
                self._validator = jsonschema_rs.validator_for(
                    dict(self.format.schema), retriever=_no_retrieval
                )
            except (ValueError, jsonschema_rs.ReferencingError) as e:
                raise ConfigError(f"The output schema {self.format.name!r} cannot be used: {e}") from e
        return self._validator


def _no_retrieval(uri: str) -> Any:
    raise ValueError(f"{uri!r} is not part of the schema, and schemas are never fetched")


def _without_added_nulls(value: Any, schema: object) -> Any:
    """`value` without the nulls of optional properties whose schema does not allow null."""
    if not isinstance(schema, Mapping):
        return value
    shape = cast("Mapping[str, Any]", schema)
    if isinstance(value, list):
        return [_without_added_nulls(item, shape.get("items")) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    properties: Mapping[str, Any] = shape.get("properties") or {}
    required = shape.get("required") or ()
    return {
        name: _without_added_nulls(inner, properties.get(name))
        for name, inner in cast("dict[str, Any]", value).items()
        if inner is not None or name in required or _allows_null(properties.get(name))
    }


def _allows_null(schema: object) -> bool:
    if not isinstance(schema, Mapping):
        return True
    kind = cast("Mapping[str, Any]", schema).get("type")
    return kind is None or kind == "null" or (isinstance(kind, list) and "null" in kind)
