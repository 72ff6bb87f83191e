"""Which URIs a resource template (RFC 6570, levels 1 to 3) may have made.

Only the question "could it?" is answered; the server that owns the template reads the values itself. So the
matcher is generous, and it takes time proportional to URI times template, whatever a hostile server writes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_EXPRESSION = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")
MAX_URI = 4096
"""Characters; a longer URI matches no template."""
MAX_PARTS = 32
"""A template with more literals and expressions matches no URI."""


@dataclass(frozen=True, slots=True)
class _Literal:
    text: str


@dataclass(frozen=True, slots=True)
class _Places:
    """`lead`, then characters that are not in `stop`; all of it may be absent if `is_optional`."""

    lead: str
    stop: str
    is_optional: bool


_OPERATORS = {
    "": _Places("", "/", is_optional=False),
    "+": _Places("", "", is_optional=False),
    "#": _Places("#", "", is_optional=True),
    ".": _Places(".", "/", is_optional=True),
    "/": _Places("/", "?#", is_optional=True),
    ";": _Places(";", "/?#", is_optional=True),
    "?": _Places("?", "#", is_optional=True),
    "&": _Places("&", "#", is_optional=True),
}


class UriTemplate:
    """One template. `prefix` is the literal text before its first expression."""

    __slots__ = ("_parts", "prefix")

    def __init__(self, template: str) -> None:
        parts: list[_Literal | _Places] = []
        end = 0
        for expression in _EXPRESSION.finditer(template):
            if expression.start() > end:
                parts.append(_Literal(template[end : expression.start()]))
            parts.append(_OPERATORS[expression[1]])
            end = expression.end()
        if end < len(template):
            parts.append(_Literal(template[end:]))
        self._parts = tuple(parts) if len(parts) <= MAX_PARTS else None
        self.prefix = parts[0].text if parts and isinstance(parts[0], _Literal) else ""

    def matches(self, uri: str) -> bool:
        """Whether the template can expand to `uri`."""
        if self._parts is None or len(uri) > MAX_URI or not uri.startswith(self.prefix):
            return False
        ends = {0}  # the places in `uri` that the parts so far can reach
        for part in self._parts:
            ends = _after_literal(part, uri, ends) if isinstance(part, _Literal) else _after(part, uri, ends)
            if not ends:
                return False
        return len(uri) in ends


def _after_literal(part: _Literal, uri: str, starts: set[int]) -> set[int]:
    return {start + len(part.text) for start in starts if uri.startswith(part.text, start)}


def _after(part: _Places, uri: str, starts: set[int]) -> set[int]:
    ends = set(starts) if part.is_optional else set[int]()
    reached = -1
    for start in sorted(starts):
        if not uri.startswith(part.lead, start):
            continue
        at = max(start + len(part.lead), reached)
        if part.lead:
            ends.add(start + len(part.lead))
        while at < len(uri) and uri[at] not in part.stop:
            at += 1
            ends.add(at)
        reached = max(reached, at)
    return ends
