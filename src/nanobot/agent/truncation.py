"""Results that are too long for a model: it gets the beginning, the end, and the path of the full text."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
import msgspec

from nanobot.agent.tools import ToolResult

log = logging.getLogger(__name__)

LIMIT: Final = 51_200
"""Bytes of a result that a model gets as they are."""
EXEMPT_LIMIT: Final = 10 * 1024 * 1024
"""Bytes of a result whose (built-in) tool knows what it does."""
_TAIL: Final = 2000  # errors are usually at the end
_SEEN_IMAGE: Final = 5 * 1024 * 1024  # bytes; larger ones no provider takes
_IMAGE_SIZE: Final = 4 * 1600  # what an image costs a model, not what its base64 weighs
_SKIP: Final = "ai.nanobot.meta/skip-truncation"

Block = Mapping[str, Any]


async def fit(result: ToolResult, folder: Path, *, tool: str, call_id: str, trusted: bool) -> ToolResult:
    """`result` within the limit; the full copy of a longer one goes to `folder/<tool>-<call id>.txt`.

    The file is `.json` when a part is not text. `trusted` results may ask to be left whole. A full copy that
    cannot be written costs the copy, not the result.
    """
    size = sum(_size(block) for block in result.content)
    if size <= LIMIT or (trusted and size <= EXEMPT_LIMIT and _asks_to_be_whole(result.content)):
        return result
    try:
        path = await anyio.to_thread.run_sync(write_full, result.content, folder, f"{tool}-{call_id}")
    except OSError as e:
        log.warning("full tool output not stored", extra={"tool": tool, "reason": e.strerror})
        lost = {"type": "text", "text": f"The full output could not be stored: {e.strerror}."}
        return replace(result, content=[lost, *_shortened(result.content, None)], structured=None)
    end = {"type": "text", "text": f"\n\n[Truncated: full output available at {path}]"}
    return replace(result, content=[*_shortened(result.content, path), end], structured=None)


def head_and_tail(text: str, limit: int) -> str:
    """At most about `limit` bytes of `text`: its beginning, preferably up to a line end, and its end."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return text
    tail_size = min(_TAIL, limit // 4)
    head = raw[: limit - tail_size]
    line_end = head.rfind(b"\n")
    if line_end > len(head) * 9 // 10:
        head = head[:line_end]
    tail = raw[-tail_size:]
    left_out = len(raw) - len(head) - len(tail)
    # "ignore" drops the halves of the characters that were cut
    return (
        f"{head.decode(errors='ignore')}\n\n[… {left_out} bytes left out …]\n\n{tail.decode(errors='ignore')}"
    )


def _shortened(content: Sequence[Block], path: Path | None) -> list[dict[str, Any]]:
    """The parts a model still gets. All text is one part: its beginning and its end are what matters."""
    text = "\n".join(block["text"] for block in content if _is_text(block))
    shown: list[dict[str, Any]] = []
    if text:
        shown.append({"type": "text", "text": head_and_tail(text, LIMIT)})
    for block in content:
        if _is_text(block):
            continue
        if block.get("type") == "image" and len(str(block.get("data") or "")) * 3 // 4 <= _SEEN_IMAGE:
            shown.append(dict(block))
        else:
            where = f"written to {path}" if path else "left out"
            shown.append({"type": "text", "text": f"[{block.get('type', 'unknown')} content {where}]"})
    return shown


def _size(block: Block) -> int:
    match block.get("type"):
        case "text":
            return _bytes(block.get("text"))
        case "image":
            data = str(block.get("data") or "")
            return _IMAGE_SIZE if len(data) * 3 // 4 <= _SEEN_IMAGE else len(data)
        case "audio":
            return len(str(block.get("data") or "")) * 3 // 4 // 160
        case "resource":
            resource: Block = block.get("resource") or {}
            return _bytes(resource.get("text")) + _bytes(resource.get("blob"))
        case _:
            return len(msgspec.json.encode(block))


def _bytes(text: object) -> int:
    if not isinstance(text, str):
        return 0
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _is_text(block: Block) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str)


def _asks_to_be_whole(content: Sequence[Block]) -> bool:
    marks: list[Block] = [block.get("_meta") or {} for block in content]
    return any(mark.get(_SKIP) is True for mark in marks)


def write_full(content: Sequence[Block], folder: Path, name: str) -> Path:
    """A new file with the whole content; an existing one is never overwritten."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if all(_is_text(block) for block in content):
        suffix, raw = ".txt", "\n".join(block["text"] for block in content).encode("utf-8", "replace")
    else:
        suffix, raw = ".json", msgspec.json.format(msgspec.json.encode(content), indent=2)
    stem = re.sub(r"[^a-zA-Z0-9_.-]", "_", name).lstrip(".")[:100] or "unnamed"
    count = 0
    while True:
        path = folder / (f"{stem}-{count}{suffix}" if count else f"{stem}{suffix}")
        try:
            with open(path, "xb", opener=_private) as file:
                file.write(raw)
        except FileExistsError:
            count += 1
        else:
            return path


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
