"""Text that is nearly JSON, made readable: a result with one odd character in it beats none at all.

Programs cut strings through the middle of an emoji, write NaN, or pass on bytes that are no UTF-8, and do not
notice. Only what could not be read as it came gets here.
"""

from __future__ import annotations

import re
from typing import Final

MAX_BYTES: Final = 1024 * 1024
"""Longer text is not looked through: nobody shall be able to keep us busy with it."""

_BOM: Final = b"\xef\xbb\xbf"
_ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
# A string is taken whole even if it never ends, and without trying again: linear, whatever a peer sends.
_NO_NUMBERS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|(-?\b(?:NaN|Infinity)\b)', re.DOTALL)

_START = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
    rb'(?:"id"\s*:\s*(\d{1,18})\s*(?:,\s*"(?:result|error)"|\})|"(?:result|error)")'
)
_END = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*\}\s*$')
EDGE: Final = 128
"""How much of either end of an answer is enough to find its id."""


def with_whole_characters(text: bytes) -> bytes:
    """Each half of a surrogate pair (`\\ud83d` alone; JSON allows it, Unicode does not) as U+FFFD."""
    return _ESCAPES.sub(lambda match: rb"\ufffd" if match[1] else match[0], text)


def mended(text: bytes) -> bytes:
    """`text` with U+FFFD for what is no character, null for what is no number, and no byte order mark."""
    text = text.removeprefix(_BOM).decode("utf-8", "replace").encode()
    text = _NO_NUMBERS.sub(lambda match: b"null" if match[1] else match[0], text)
    return with_whole_characters(text)


def answered_by(line: bytes) -> int | None:
    """The id of the request that a line answers, as far as can be told of one that cannot be read.

    Never the id of a request that the other side merely prints: what follows it, or the first member, must
    be a result or an error.
    """
    start = _START.match(line[:EDGE])
    if start is None:
        return None
    match = start if start[1] else _END.search(line[-EDGE:])
    return None if match is None else int(match[1])
