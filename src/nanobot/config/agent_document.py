"""One agent as the document it was written as, and back: for hooks, which may change an agent for a turn."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

from nanobot.config import builtin
from nanobot.config.build_agent import build_agent
from nanobot.config.diagnostics import Diagnostics, InvalidConfig
from nanobot.config.keys import AGENT
from nanobot.config.model import Agent, Config
from nanobot.config.nodes import Entries, from_plain, without_nulls
from nanobot.config.places import Origin
from nanobot.config.references import Known
from nanobot.config.view import View

_FIXED: Final = ("output", "hooks")
"""Keys that stay as they are configured, whatever a changed document says."""


def agent_document(agent: Agent, config: Config) -> dict[str, Any]:
    """The keys of `agent` as they may stand in `nanobot.yaml`, unexpanded; a copy."""
    agents: Mapping[str, Any] = config.document.get("agents") or {}
    document = deepcopy(dict(agents.get(agent.id) or {}))
    document.pop("hooks", None)
    return document


def changed_agent(
    agent: Agent, document: Mapping[str, Any], config: Config, *, guests: Collection[str] = ()
) -> Agent:
    """`agent` as `document` describes it, which may refer to the servers `guests` too.

    Raises `InvalidConfig`, which tells all that is wrong with that.
    """
    found = Diagnostics()
    at = Origin(f"(a hook of agent {agent.id!r})", 1)
    place = found.root.key("agents").key(agent.id)
    written = from_plain({key: value for key, value in document.items() if key not in _FIXED}, at)
    node = AGENT.accept(without_nulls(written), place)
    known = Known(
        servers=config.mcp_servers.keys() | builtin.SERVERS | set(guests),
        agents=config.agents.keys(),
        prompts=config.prompts.keys(),
        providers=config.llm_providers.keys() | builtin.KNOWN_PROVIDERS.keys() | builtin.RESERVED_PROVIDERS,
    )
    built = build_agent(agent.id, View(node, at, place), known, {}) if isinstance(node, Entries) else agent
    if any(one.severity == "error" for one in found.sorted()):
        raise InvalidConfig(found.sorted())
    return replace(built, output=agent.output, hooks=agent.hooks, origin=agent.origin)
