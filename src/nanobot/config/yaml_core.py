"""What an unquoted word means in YAML 1.2: the core schema, without the surprises of version 1.1."""

from __future__ import annotations

import math
import re

from nanobot.config.nodes import Value

_INT = re.compile(r"[-+]?[0-9]{1,40}|0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_CONSTANTS: dict[str, Value] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def resolve(text: str) -> Value:
    """An unquoted scalar by the YAML 1.2 core schema. Infinity and NaN: `ValueError`."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    first = text[0]
    if first not in "-+.0123456789":
        return text
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(text)
        return number
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(text)
    return text
