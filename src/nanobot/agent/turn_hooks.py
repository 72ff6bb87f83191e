"""Hooks of an agent, put around what a turn begins with and around its model."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import msgspec

from nanobot.agent.briefing import Briefing, Briefings
from nanobot.agent.hooked_model import HookedModel
from nanobot.config.agent_document import agent_document, changed_agent
from nanobot.config.model import Agent, Config, McpServer
from nanobot.errors import ConfigError
from nanobot.hub.guests import OpenGuests, guest_servers
from nanobot.hub.hooks.events import EventHooks
from nanobot.wire.call import Call

CONFIG: Final = "config"


@dataclass(frozen=True, slots=True)
class _Changed:
    """What a `config` hook made of an agent: the same text gives the same object, for caches."""

    document: bytes
    agent: Agent


class HookedBriefings:
    """`inner`, with the hooks of some agents (by id) before and after it. Satisfies `Briefs`."""

    def __init__(
        self,
        inner: Briefings,
        hooks: Mapping[str, EventHooks],
        config: Config,
        open_guests: OpenGuests | None,
    ) -> None:
        """`open_guests` connects the servers that hooks add; None: they can add none."""
        self._open_guests = open_guests
        self._inner = inner
        self._hooks = hooks
        self._config = config
        self._changed: dict[str, _Changed] = {}

    async def prepare(self, agent: Agent, call: Call, company: AsyncExitStack) -> Briefing:
        """As `Briefings.prepare`; also raises `HooksFailed`, and `ConfigError` for an agent made unusable."""
        hooks = self._hooks.get(agent.id)
        if hooks is None:
            return await self._inner.prepare(agent, call, company)
        guests = None
        if hooks.has(CONFIG):
            agent, servers = await self._configured(agent, hooks, call)
            if servers and self._open_guests is None:
                raise ConfigError(f"A `config` hook of agent {agent.id!r} cannot add MCP servers here.")
            if servers and self._open_guests is not None:
                guests = await company.enter_async_context(self._open_guests(servers))
        briefing = await self._inner.prepare(agent, call, company, guests)
        if not hooks.has("request", "response"):
            return briefing
        model = HookedModel(briefing.chosen, hooks, agent.id, call)
        return replace(briefing, chosen=replace(briefing.chosen, model=model))

    async def _configured(
        self, agent: Agent, hooks: EventHooks, call: Call
    ) -> tuple[Agent, Mapping[str, McpServer]]:
        """The agent of the turn, and the servers that the hooks add for it."""
        before = agent_document(agent, self._config)
        payload = {
            "agent": before,
            "_meta": dict(call.meta),
            "sessionId": call.thread or call.caller.session or "",
            "mcpServers": {},
        }
        after = await hooks.run(CONFIG, payload, call)
        by = f"A `config` hook of agent {agent.id!r}"
        servers = guest_servers(after.get("mcpServers"), self._config, by=by)
        document: Any = after.get("agent")
        if not isinstance(document, dict):
            raise ConfigError(f"{by} answered without an agent.")
        document = cast("dict[str, Any]", document)
        if document == before:
            return agent, servers
        text = msgspec.json.encode([document, sorted(servers)])
        known = self._changed.get(agent.id)
        if known is None or known.document != text:
            known = self._changed[agent.id] = _Changed(
                text, changed_agent(agent, document, self._config, guests=servers)
            )
        return known.agent, servers
