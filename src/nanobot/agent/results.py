"""Tool results as they go into a conversation: never empty, storable, with data where the text is data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from nanobot.agent.tools import ToolResult
from nanobot.llm.content import clean

_LONGEST_ERROR: Final = 4000


def failed(tool: str, reason: str) -> ToolResult:
    """The result of a call that raised `reason`."""
    return ToolResult.text(clean(f"Error calling {tool}: {reason}"[:_LONGEST_ERROR]), is_error=True)


def normalised(result: ToolResult, *, tool: str) -> ToolResult:
    """`result` with at least one part that says something; a lone JSON object in text also as data."""
    content = [_clean_block(block) for block in result.content if isinstance(block, Mapping)]  # pyright: ignore[reportUnnecessaryIsInstance]
    if all(block.get("type") == "text" and not str(block.get("text") or "").strip() for block in content):
        content = [{"type": "text", "text": f"({tool} completed with no output)"}]
    structured = result.structured
    if structured is None and not result.is_error:
        structured = _data(content)
    return replace(result, content=content, structured=structured)


def _clean_block(block: dict[str, Any]) -> dict[str, Any]:
    text = block.get("text")
    if not isinstance(text, str):
        return block
    cleaned = clean(text)
    return block if cleaned is text else {**block, "text": cleaned}


def _data(content: Sequence[Mapping[str, Any]]) -> Any:
    """The JSON object that a single text part consists of; None otherwise."""
    if len(content) != 1 or content[0].get("type") != "text":
        return None
    text = str(content[0].get("text")).strip()
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
