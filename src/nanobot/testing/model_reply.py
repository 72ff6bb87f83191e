"""What a scripted model answers, and how a script is written into a message."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from nanobot.llm.words import words

MARKER: Final = "[[{"


class ScriptedCall(msgspec.Struct, frozen=True):
    """A tool call to ask for. `arguments` may be text, to be sent as it is."""

    name: str
    arguments: dict[str, Any] | str = {}

    @property
    def text(self) -> str:
        """The argument text as a model writes it."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer of the model, and what goes wrong with it. Times are in milliseconds.

    Events are counted as the dialect writes them, from 1.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    finish: str = ""
    """`length`, `content_filter` or `refusal`; "" is the natural end."""
    chunks: int = 0
    """Pieces of the text; 0: its words."""
    wait_ms: float = 0
    """Before the status line."""
    pause_ms: float = 0
    """Before each event, comment and ping."""
    comments: int = 0
    """Comment lines before each event."""
    pings: int = 0
    """Ping events before each event."""
    split: int = 0
    """Write the body in pieces of so many bytes."""
    cut_after: int | None = None
    """Close the connection after so many events."""
    end_after: int | None = None
    """End the stream properly after so many events, as if it were complete."""
    error_after: int | None = None
    """Report an error inside the stream after so many events."""
    status: int = 200
    error_code: str = ""
    error_message: str = "scripted failure"
    retry_after: str = ""
    headers: dict[str, str] = {}
    plain: bool = False
    """One JSON document although a stream was asked for."""
    usage: tuple[int, int] = (7, 5)
    """Input and output tokens."""

    @property
    def is_instant(self) -> bool:
        return not (self.wait_ms or self.pause_ms or self.comments or self.pings or self.split)

    @property
    def pieces(self) -> list[str]:
        """The text as it is streamed."""
        if self.chunks == 0:
            return words(self.text)
        size = -(-len(self.text) // self.chunks) or 1
        return [self.text[i : i + size] for i in range(0, len(self.text), size)]


def replies_in(text: str) -> tuple[Reply, ...]:
    """The replies written as `[[{…}]]` in `text`. Raises `msgspec.ValidationError` for one that is none."""
    decoder = json.JSONDecoder()
    found: list[Reply] = []
    at = text.find(MARKER)
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at + 2)
        except json.JSONDecodeError:
            end = at + 2
        else:
            if text.startswith("]]", end):
                found.append(msgspec.convert(value, Reply))
        at = text.find(MARKER, end)
    return tuple(found)
