"""What callers had brought along who were refused: each of it is worth one more attempt, and no second."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

MOST: Final = 1000
"""How many callers may each have a server that refused others asked at once, until it accepts one."""

_encode = msgspec.json.Encoder(order="sorted").encode


class Tried:
    """Values that were tried since the last success; only digests of them are kept."""

    __slots__ = ("_digests",)

    def __init__(self) -> None:
        self._digests: set[bytes] = set()

    def note(self, values: Mapping[str, str]) -> bool:
        """These are tried; whether for the first time."""
        digest = hashlib.sha256(_encode(dict(values))).digest()
        is_new = digest not in self._digests and len(self._digests) < MOST
        if is_new:
            self._digests.add(digest)
        return is_new

    def clear(self) -> None:
        """There was a success."""
        self._digests.clear()
