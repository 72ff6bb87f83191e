"""Noticing that a model goes round in circles."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from nanobot.llm.messages import ToolCall, ToolOutput

TIMES: Final = 5


class LoopGuard:
    """Counts how often the same call gave the same result in a row.

    A different result starts afresh: asking again until something has changed is a fine thing to do.
    """

    def __init__(self) -> None:
        self._last: tuple[str, str, bytes] = ("", "", b"")
        self._times = 0

    def goes_round(self, call: ToolCall, output: ToolOutput) -> bool:
        """Take note of a finished call; True if it was the one too many."""
        result = hashlib.sha1(msgspec.json.encode([output.content, output.is_error]), usedforsecurity=False)
        this = (call.name, call.arguments, result.digest())
        self._times = self._times + 1 if this == self._last else 1
        self._last = this
        return self._times >= TIMES
