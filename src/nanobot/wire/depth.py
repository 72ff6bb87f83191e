"""How deep JSON may nest: a bound checked at C speed, without decoding."""

from __future__ import annotations

import re
from array import array
from itertools import accumulate
from typing import Final

from nanobot.wire.rpc import INVALID_REQUEST, RpcError

MAX_DEPTH: Final = 200

_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(c for c in range(256) if c not in b"[]{}")


def check_depth(text: bytes | bytearray, limit: int = MAX_DEPTH) -> None:
    """Raises `RpcError` (-32600) if the JSON `text` nests deeper than `limit`.

    Text with no more opening brackets than `limit` cannot, which settles nearly every message.
    """
    if text.count(b"{") + text.count(b"[") <= limit:
        return
    steps = array("b", _STRINGS.sub(b"", text).translate(_STEPS, _NO_BRACKETS))
    if max(accumulate(steps)) > limit:
        raise RpcError(INVALID_REQUEST, f"JSON nested deeper than {limit} levels")
