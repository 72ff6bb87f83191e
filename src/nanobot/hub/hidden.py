"""Characters that a person does not see and a model reads: how a tool's description can say two things."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from nanobot.wire.rpc import Payload

_HIDDEN: Final = re.compile(
    "["
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u3164\uffa0"  # fillers without width
    "\u200b\u2060-\u2064\u206a-\u206f\ufeff"  # zero width; joiners are left out, scripts and emoji need them
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction of writing
    "\U000e0000-\U000e007f\U000e0100-\U000e01ef"  # tags and further variation selectors: a second alphabet
    "]"
)


def hidden_characters(definition: Payload) -> list[str]:
    """The code points (`U+202E`) of invisible and bidirectional characters anywhere in a definition."""
    raw = definition.raw
    if b"\\u" in raw:  # escapes hide from a search; encoding anew resolves them
        raw = msgspec.json.encode(definition.value)
    if raw.isascii():
        return []
    return sorted({f"U+{ord(char):04X}" for char in _HIDDEN.findall(raw.decode())})
