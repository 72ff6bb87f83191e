"""A tool as a turn knows it, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool as an agent is offered it. `name` is the published name; `read_only` allows parallel running.

    `listed_as` is its name without alias, `own_name` what its server calls it; "" where these are `name`.
    """

    name: str
    description: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    target: str = ""
    target_type: Literal["tool", "agent"] = "tool"
    read_only: bool = False
    listed_as: str = ""
    own_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool gave: MCP content blocks, and the same as data if there is such a form."""

    content: Sequence[dict[str, Any]]
    is_error: bool = False
    structured: Any = None
    meta: Mapping[str, Any] | None = None

    @staticmethod
    def text(text: str, *, is_error: bool = False) -> ToolResult:
        return ToolResult(content=[{"type": "text", "text": text}], is_error=is_error)
