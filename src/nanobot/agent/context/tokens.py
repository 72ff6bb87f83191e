"""Estimates of tokens, without a tokenizer: good enough to know in time that a window is getting full.

What providers report corrects them: per model the estimates are scaled by what its answers said so far.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from collections.abc import Mapping
from typing import Any, Final

from nanobot.llm.messages import Content, Item, Message, Reasoning, Text, ToolCall, ToolOutput, Unknown
from nanobot.llm.model import ToolSet

ASCII_PER_TOKEN: Final = 3.6
IMAGE: Final = 1600
"""Of an image that cannot be measured."""
PDF_PAGE: Final = 2300
_MESSAGE: Final = 4
_CALL: Final = 8
_LONGEST_EDGE: Final = 1568
_PIXELS_PER_TOKEN: Final = 750
_ALPHA, _SLOWEST, _FASTEST = 0.3, 1.8, 0.6
_LEARN_FROM: Final = 500
_WIDE: Final = re.compile(
    "[\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)


class Gauge:
    """How far estimates are off for each model; `scope` is the model's, see `ProviderData`."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def ratio(self, scope: str) -> float:
        """What to multiply an estimate with."""
        return self._ratios.get(scope, 1.0)

    def learn(self, scope: str, *, reported: int, estimated: int) -> None:
        """Take note that a request of `estimated` tokens had `reported` ones, if that is plausible."""
        ratio = (1 - _ALPHA) * self.ratio(scope) + _ALPHA * reported / estimated
        self._ratios[scope] = min(max(ratio, _FASTEST), _SLOWEST)


def is_plausible(reported: int, estimated: int) -> bool:
    """Whether a report tells something: small requests do not, and some servers count only what is new."""
    return reported >= _LEARN_FROM and estimated / 4 <= reported <= estimated * 4


def of_text(text: str) -> int:
    if text.isascii():
        return math.ceil(len(text) / ASCII_PER_TOKEN)
    plain = len(text.encode("ascii", "ignore"))
    wide = sum(1 for _ in _WIDE.finditer(text))
    return math.ceil(plain / ASCII_PER_TOKEN + wide + (len(text) - plain - wide) * 0.5)


def of_message(message: Message) -> int:
    return _MESSAGE + sum(map(_of_item, message.items))


def of_tools(tools: ToolSet) -> int:
    return sum(of_text(f"{t.name}{t.description}{_compact(t.schema)}") + _CALL for t in tools.tools)


def of_block(block: Mapping[str, Any]) -> int:
    """An MCP content block."""
    match block.get("type"):
        case "text":
            return of_text(str(block.get("text", "")))
        case "image":
            return of_image(str(block.get("data", "")))
        case "audio":
            return _weight(str(block.get("data", ""))) // 640
        case "resource":
            return _of_resource(block.get("resource") or {})
        case _:
            return of_text(_compact(block))


def of_image(data: str) -> int:
    """An image in base64, by its size in pixels."""
    size = _image_size(data)
    if size is None:
        return IMAGE
    width, height = size
    longest = max(width, height)
    if longest > _LONGEST_EDGE:
        width, height = int(width * _LONGEST_EDGE / longest), int(height * _LONGEST_EDGE / longest)
    return round(width * height / _PIXELS_PER_TOKEN)


def _of_item(item: Item) -> int:
    match item:
        case Text(text=text):
            return of_text(text)
        case Content(body=body):
            return of_block(body)
        case ToolCall(name=name, arguments=arguments):
            return _CALL + of_text(name) + of_text(arguments)
        case ToolOutput(content=content):
            return _CALL + sum(map(of_block, content))
        case Reasoning(summary=summary, provider_data=data):
            return sum(map(of_text, summary)) + (len(_compact(data.data)) // 4 if data else 0)
        case Unknown(body=body):
            return of_text(_compact(body))


def _of_resource(resource: Mapping[str, Any]) -> int:
    if "text" in resource:
        return of_text(str(resource["text"]))
    data, kind = str(resource.get("blob", "")), str(resource.get("mimeType", ""))
    if kind.startswith("image/"):
        return of_image(data)
    if kind == "application/pdf":
        return max(1, _weight(data) // 50_000) * PDF_PAGE
    return _weight(data) // 4


def _weight(data: str) -> int:
    """Bytes of what is written in base64."""
    return len(data) * 3 // 4


def _image_size(data: str) -> tuple[int, int] | None:
    try:
        head = base64.b64decode(data[:200_000], validate=False)
    except (binascii.Error, ValueError):
        return None
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        return struct.unpack(">II", head[16:24])
    if head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        return struct.unpack("<HH", head[6:10])
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _webp_size(head)
    return _jpeg_size(head) if head.startswith(b"\xff\xd8") else None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8X" and len(head) >= 30:
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if kind == b"VP8 " and len(head) >= 30:
        width, height = struct.unpack("<HH", head[26:30])
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L" and len(head) >= 25:
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return width, height
        at += 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return None


def _compact(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()
