"""Token counts: what providers report, and an estimate where they report nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from nanobot.llm.messages import Item, Reasoning, Text, ToolCall
from nanobot.llm.model import ModelRequest, Usage

_ASCII_PER_TOKEN = 3.6


def number(value: Any) -> int | None:
    """`value` as a token count; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return max(0, int(value))


def first_number(*values: Any) -> int | None:
    """The first of `values` that is a token count."""
    return next((n for v in values if (n := number(v)) is not None), None)


def tokens(text: str) -> int:
    """An estimate of the tokens in `text`: no network, no tables."""
    if text.isascii():
        return math.ceil(len(text) / _ASCII_PER_TOKEN)
    ascii_count = sum(c < "\x80" for c in text)
    wide = sum(
        "\u2e80" <= c <= "\u9fff" or "\uac00" <= c <= "\ud7af" or "\uff00" <= c <= "\uffef" for c in text
    )
    return math.ceil(ascii_count / _ASCII_PER_TOKEN + wide + (len(text) - ascii_count - wide) * 0.5)


def estimated(request: ModelRequest, items: Sequence[Item]) -> Usage:
    """The usage of an answer whose provider did not report any."""
    sent = tokens(request.instructions)
    for message in request.messages:
        sent += 4 + sum(_written(item) for item in message.items)
    return Usage(input_tokens=sent, output_tokens=sum(_written(i) for i in items), source="estimated")


def _written(item: Item) -> int:
    match item:
        case Text(_, text):
            return tokens(text)
        case ToolCall():
            return 8 + tokens(item.arguments)
        case Reasoning():
            return tokens("".join(item.summary))
        case _:
            return 8 + tokens(str(getattr(item, "content", "")))
