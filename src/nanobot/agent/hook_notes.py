"""What a model is told about a call or a result that hooks have changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from nanobot.agent.tools import ToolResult
from nanobot.hub.hooks.source import MUTATIONS


def with_notes(result: ToolResult) -> ToolResult:
    """`result` with a sentence before its content if the call was changed, and one after it if it was."""
    traces = (result.meta or {}).get(MUTATIONS)
    if not isinstance(traces, Mapping):
        return result
    traces = cast("Mapping[str, Any]", traces)
    before, after = (_note(direction, traces.get(direction)) for direction in ("request", "response"))
    return replace(result, content=[*before, *result.content, *after])


def _note(direction: str, trace: Any) -> list[dict[str, Any]]:
    if not isinstance(trace, Mapping):
        return []
    reasons = cast("Mapping[str, Any]", trace).get("reasons")
    text = f"MCP {direction} was mutated by hooks."
    if isinstance(reasons, list) and reasons:
        text += f" Reasons: {'; '.join(map(str, cast('list[Any]', reasons)))}"
    return [{"type": "text", "text": text}]
