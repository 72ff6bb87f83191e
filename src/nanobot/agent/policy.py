"""Which tools an agent may see at all. What it may not see does not exist for it.

`permissions` govern the built-in server `nanobot.system`; tools of others are chosen by reference alone.
"""

from __future__ import annotations

from nanobot.config.builtin import SYSTEM
from nanobot.config.model import Agent
from nanobot.config.permissions import GRANTED, permits_tool
from nanobot.config.places import Reference
from nanobot.hub.published import Published


def system_tools(agent: Agent) -> list[Reference]:
    """References to the built-in tools that the agent has without asking for them."""
    return [Reference(SYSTEM, tool) for tool in GRANTED if permits_tool(agent, tool)]


def may_see(agent: Agent, tool: Published) -> bool:
    """Whether `agent` is offered `tool`, by whatever name it is published."""
    return tool.server != SYSTEM or permits_tool(agent, tool.own_name)
