"""JSON with comments and trailing commas to nodes with positions."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right

from nanobot.config.diagnostics import Diagnostics
from nanobot.config.nodes import MAX_DEPTH, MAX_NODES, Entries, Entry, Items, Node, Scalar, shown_key
from nanobot.config.places import Origin

_GAP = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*[\s\S]*?\*/)*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z_$]+")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Malformed(Exception):
    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset, self.message = offset, message


def parse_json(text: str, source: str, found: Diagnostics) -> Node | None:
    """The value in `text`, None if it is blank or broken; what is wrong goes to `found`."""
    reader = _Reader(text, source, found)
    try:
        return reader.document()
    except _Malformed as e:
        found.add("error", "syntax", reader.origin(e.offset), f"Not valid JSON: {e.message}.")
        return None


class _Reader:
    def __init__(self, text: str, source: str, found: Diagnostics) -> None:
        self._text = text
        self._source = source
        self._found = found
        self._line_starts = [0, *(m.end() for m in re.finditer("\n", text))]
        self._at = 0
        self._count = 0

    def origin(self, offset: int) -> Origin:
        line = bisect_right(self._line_starts, offset)
        return Origin(self._source, line, offset - self._line_starts[line - 1] + 1)

    def document(self) -> Node | None:
        self._skip()
        if self._at == len(self._text):
            return None
        node = self._value(1)
        self._skip()
        if self._at < len(self._text):
            raise _Malformed(self._at, "something follows the end of the document")
        return node

    def _value(self, depth: int) -> Node:
        if depth > MAX_DEPTH + 1:
            raise _Malformed(self._at, f"nested deeper than {MAX_DEPTH} levels")
        self._count += 1
        if self._count > MAX_NODES:
            raise _Malformed(self._at, f"more than {MAX_NODES} values")
        start, at = self._at, self.origin(self._at)
        match self._text[start : start + 1]:
            case "{":
                return self._mapping(depth, at)
            case "[":
                return self._list(depth, at)
            case '"':
                return Scalar(self._string(), at)
            case _:
                pass
        if number := _NUMBER.match(self._text, start):
            self._at = number.end()
            return Scalar(self._number(number), at)
        word = _WORD.match(self._text, start)
        if word is None or word[0] not in _WORDS:
            raise _Malformed(
                start, "a value is missing here" if word is None else "text must be in double quotes"
            )
        self._at = word.end()
        return Scalar(_WORDS[word[0]], at)

    def _mapping(self, depth: int, at: Origin) -> Entries:
        entries: dict[str, Entry] = {}
        while not self._next("}", is_first=not entries):
            key_at = self.origin(self._at)
            if self._text[self._at : self._at + 1] != '"':
                raise _Malformed(self._at, "a key in double quotes is expected")
            key = self._string()
            self._skip()
            if self._text[self._at : self._at + 1] != ":":
                raise _Malformed(self._at, "`:` is expected after the key")
            self._at += 1
            self._skip()
            node = self._value(depth + 1)
            if (before := entries.setdefault(key, Entry(key_at, node))).key_at is not key_at:
                self._found.add(
                    "error",
                    "duplicate-key",
                    key_at,
                    f"The key {shown_key(key)} is written twice: "
                    f"on line {before.key_at.line} and on line {key_at.line}.",
                    hint="delete one of them",
                )
        return Entries(entries, at)

    def _list(self, depth: int, at: Origin) -> Items:
        items: list[Node] = []
        while not self._next("]", is_first=not items):
            items.append(self._value(depth + 1))
        return Items(tuple(items), at)

    def _next(self, closing: str, *, is_first: bool) -> bool:
        """Step to the next member, True at the end. On the first call `self._at` is the opening bracket."""
        if is_first:
            self._at += 1
        self._skip()
        if not is_first and self._text[self._at : self._at + 1] == ",":
            self._at += 1
            self._skip()
        elif not is_first and self._text[self._at : self._at + 1] != closing:
            raise _Malformed(self._at, f"`,` or `{closing}` is expected")
        if self._at == len(self._text):
            raise _Malformed(self._at, f"`{closing}` is missing at the end")
        if self._text[self._at] == closing:
            self._at += 1
            return True
        return False

    def _string(self) -> str:
        match = _STRING.match(self._text, self._at)
        if match is None:
            raise _Malformed(self._at, "this text does not end on its line")
        try:
            text = json.loads(match[0])
        except ValueError:
            raise _Malformed(self._at, "this text holds an unknown escape") from None
        if _SURROGATE.search(text):
            raise _Malformed(self._at, "this text holds half a surrogate pair")
        self._at = match.end()
        return text

    def _number(self, match: re.Match[str]) -> int | float:
        if match[1] is None and match[2] is None and len(match[0]) <= 40:
            return int(match[0])
        number = float(match[0])
        if not math.isfinite(number):
            raise _Malformed(match.start(), "this number is too large")
        return number

    def _skip(self) -> None:
        end = _GAP.match(self._text, self._at)
        self._at = end.end() if end else self._at
