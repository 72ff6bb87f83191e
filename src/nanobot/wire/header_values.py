"""Text in HTTP headers: as it is where a header can carry it, else as `=?base64?…?=` around UTF-8."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

_PRINTABLE = re.compile(r"[\x20-\x7e]*")
_START: Final = "=?base64?"
_END: Final = "?="


def header_text(value: str) -> str:
    """`value` as a header can carry it: as it is if it survives that, else wrapped in base64."""
    wrapped = value.startswith(_START) and value.endswith(_END)
    if _PRINTABLE.fullmatch(value) and value == value.strip() and not wrapped:
        return value
    return f"{_START}{base64.b64encode(value.encode()).decode()}{_END}"


def header_value(header: bytes | None) -> str | None:
    """What a header says. None if it is missing or wrapped wrongly: that matches nothing."""
    text = plain_value(header)
    if text is None or not (text.startswith(_START) and text.endswith(_END)):
        return text
    payload = text[len(_START) : -len(_END)]
    try:
        decoded = base64.b64decode(payload, validate=True)
        # Two spellings of one value would let a header and a body look different to somebody between.
        return decoded.decode() if base64.b64encode(decoded).decode() == payload else None
    except (binascii.Error, ValueError):
        return None


def plain_value(header: bytes | None) -> str | None:
    """A header without the blanks around it, which HTTP does not count as part of its value."""
    return None if header is None else header.strip(b" \t").decode("latin-1")
