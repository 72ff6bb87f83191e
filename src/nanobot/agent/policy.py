"""Which tools an agent may see at all. What it may not see does not exist for it.

`permissions` govern the built-in server `nanobot.system`; tools of others are chosen by reference alone.
"""

from __future__ import annotations

from typing import Final

from nanobot.config.builtin import SYSTEM
from nanobot.config.model import Agent, Reference
from nanobot.hub.published import Published

_GRANTED: Final = {
    "bash": "bash",
    "read": "read",
    "write": "write",
    "edit": "edit",
    "glob": "glob",
    "grep": "grep",
    "todoWrite": "todoWrite",
    "webFetch": "webFetch",
    "askUserQuestion": "askUserQuestion",
    "getSkill": "skills",
}
"""Tool → the permission it needs, in the order agents are given them."""
_NEVER: Final = frozenset({"config"})


def system_tools(agent: Agent) -> list[Reference]:
    """References to the built-in tools that the agent has without asking for them."""
    return [Reference(SYSTEM, tool) for tool in _GRANTED if permits_tool(agent, tool)]


def may_see(agent: Agent, tool: Published) -> bool:
    """Whether `agent` is offered `tool`, by whatever name it is published."""
    return tool.server != SYSTEM or permits_tool(agent, tool.own_name)


def permits_tool(agent: Agent, tool: str) -> bool:
    """Whether the agent's `permissions` allow the built-in `tool` (its own name)."""
    if tool in _NEVER:
        return False
    if tool == "edit" and "edit" not in (agent.permissions or {}):
        return agent.permits("edit") or agent.permits("write")
    return agent.permits(_GRANTED.get(tool, tool))
