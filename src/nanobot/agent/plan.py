"""From the calls of an answer to what will be run, in which order, and what side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from nanobot.agent import notes
from nanobot.agent.arguments import BadArguments, read_arguments
from nanobot.agent.nearest import unknown_tool
from nanobot.agent.toolbox import Toolbox
from nanobot.agent.tools import Tool
from nanobot.llm.messages import ToolCall

MOST_CALLS: Final = 64
"""Calls of one answer that are run."""
_SIDE_BY_SIDE: Final = 8
_AGENTS_SIDE_BY_SIDE: Final = 4


@dataclass(frozen=True, slots=True)
class Planned:
    """A call to run: `call` bears published name and target."""

    call: ToolCall
    tool: Tool
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Refused:
    """A call that is not run; `reason` is its error result."""

    call: ToolCall
    reason: str


Step = Planned | Refused


def plan(calls: Sequence[ToolCall], toolbox: Toolbox) -> list[Step]:
    """What becomes of each call, in order. The names in `calls` are as the model wrote them."""
    return [_step(call, toolbox, number) for number, call in enumerate(calls)]


def groups(steps: Sequence[Step], *, parallel: bool) -> list[list[Step]]:
    """The steps in order, cut where one has to wait for those before it.

    Side by side go calls that change nothing (and refusals), and calls of different agents.
    """
    cut: list[list[Step]] = []
    is_open = False
    for step in steps:
        is_safe = parallel and _is_safe(step)
        if is_open and is_safe and _fits(step, cut[-1]):
            cut[-1].append(step)
        else:
            cut.append([step])
        is_open = is_safe
    return cut


def _step(call: ToolCall, toolbox: Toolbox, number: int) -> Step:
    tool = toolbox.wired.get(call.name) or toolbox.named.get(call.name)
    if tool is None:
        return Refused(call, unknown_tool(call.name, [*toolbox.named]))
    call = replace(call, name=tool.name, target=tool.target, target_type=tool.target_type)
    if number >= MOST_CALLS:
        return Refused(call, notes.CALLS_DROPPED.format(limit=MOST_CALLS))
    try:
        return Planned(call, tool, read_arguments(call.arguments, tool=tool.name, schema=tool.schema))
    except BadArguments as e:
        return Refused(call, str(e))


def _is_safe(step: Step) -> bool:
    return isinstance(step, Refused) or step.tool.read_only or step.tool.target_type == "agent"


def _fits(step: Step, group: Sequence[Step]) -> bool:
    if len(group) >= _SIDE_BY_SIDE:
        return False
    if isinstance(step, Refused) or step.tool.target_type != "agent":
        return True
    agents = {s.tool.target for s in group if isinstance(s, Planned) and s.tool.target_type == "agent"}
    return step.tool.target not in agents and len(agents) < _AGENTS_SIDE_BY_SIDE
