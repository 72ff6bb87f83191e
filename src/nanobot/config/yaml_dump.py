"""JSON-like values as block-style YAML that reads back as the same values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from nanobot.config.yaml_core import resolve

_BARE = re.compile(r"[A-Za-z0-9_./$][A-Za-z0-9_./$ @%+=(),;-]*")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def dump_yaml(value: Any, comments: Mapping[str, str] | None = None) -> str:
    """`value` (JSON-like) as block-style YAML. `comments` maps dotted paths to a comment for that line."""
    lines: list[str] = []
    _write(value, "", "", comments or {}, lines)
    return "\n".join(lines) + "\n"


def _write(value: Any, indent: str, path: str, comments: Mapping[str, str], lines: list[str]) -> None:
    if isinstance(value, Mapping) and value:
        for key, below in cast("Mapping[str, Any]", value).items():
            at = f"{path}.{key}" if path else key
            _write_entry(f"{indent}{_inline(key)}:", below, indent + "  ", at, comments, lines)
    elif isinstance(value, list) and value:
        for index, below in enumerate(cast("Sequence[Any]", value)):
            _write_entry(f"{indent}-", below, indent + "  ", f"{path}[{index}]", comments, lines)
    else:
        lines.append(indent + _inline(value))


def _write_entry(
    head: str, value: Any, indent: str, path: str, comments: Mapping[str, str], lines: list[str]
) -> None:
    note = f"  # {comments[path]}" if path in comments else ""
    if isinstance(value, (Mapping, list)) and value:
        lines.append(head + note)
        _write(value, indent, path, comments, lines)
    elif isinstance(value, str) and _is_block(value):
        lines.append(f"{head} {'|' if value.endswith(chr(10)) else '|-'}{note}")
        lines.extend(indent + line if line else "" for line in value.removesuffix("\n").split("\n"))
    else:
        lines.append(f"{head} {_inline(value)}{note}")


def _is_block(text: str) -> bool:
    """Whether `text` survives as a literal block: several printable lines, the first one not indented."""
    body = text.removesuffix("\n")
    return (
        "\n" in body
        and not text.startswith((" ", "\n"))
        and not body.endswith("\n")
        and all(line.isprintable() for line in body.split("\n"))
    )


def _inline(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            is_bare = _BARE.fullmatch(value) and not value.endswith(" ") and _resolves_to_itself(value)
            return value if is_bare else '"' + "".join(map(_escaped, value)) + '"'
        case Mapping():
            return "{}"
        case _:
            return "[]"


def _resolves_to_itself(text: str) -> bool:
    try:
        return resolve(text) == text
    except ValueError:
        return False


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
