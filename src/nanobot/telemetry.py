"""Traces of the program, behind seams so small that nothing is imported while they are off."""

from __future__ import annotations

import re
from typing import Final

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


def trace_id_in(traceparent: str) -> str:
    """The trace id in a W3C `traceparent`; "" if it is none."""
    match = _TRACEPARENT.fullmatch(traceparent)
    return match[1] if match and match[1].strip("0") else ""
