"""Which built-in tools the `permissions` of an agent grant."""

from __future__ import annotations

from typing import Final

from nanobot.config.model import Agent

GRANTED: Final = {
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
"""Tool of `nanobot.system` → the permission it needs, in the order agents are given them."""
_NEVER: Final = frozenset({"config"})


def permits_tool(agent: Agent, tool: str) -> bool:
    """Whether the agent's `permissions` allow the built-in `tool` (its own name)."""
    if tool in _NEVER:
        return False
    if tool == "edit" and "edit" not in (agent.permissions or {}):
        return agent.permits("edit") or agent.permits("write")
    return agent.permits(GRANTED.get(tool, tool))
