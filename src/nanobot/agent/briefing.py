"""What all requests of a turn to its model share: instructions, tools, model. Prepared once per turn.

The tools are made once per change of the catalogue and keep their encoded form, so that every request begins
byte for byte like the one before.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from nanobot.agent.instructions import read_instructions
from nanobot.agent.output import OutputShape
from nanobot.agent.policy import may_see, system_tools
from nanobot.agent.toolbox import Calls, Toolbox
from nanobot.config.builtin import SYSTEM
from nanobot.config.model import Agent, Config
from nanobot.config.places import Reference
from nanobot.errors import ConfigError
from nanobot.hub.published import Listing, Missing, Published
from nanobot.llm.messages import Message
from nanobot.llm.model import Beginning, ModelRequest, ToolSet
from nanobot.wire.call import Call
from nanobot.wire.rpc import Payload

if TYPE_CHECKING:
    from nanobot.hub.hub import Hub
    from nanobot.llm.router import Chosen

log = logging.getLogger(__name__)

_NO_TOOLS = ToolSet()
_LESS_EFFORT = {"max": "xhigh", "xhigh": "high", "high": "medium", "medium": "low", "low": "minimal"}


class ModelChoice(Protocol):
    """Finds the model of an agent. Raises `ConfigError`, one sentence, for one that cannot be used."""

    def choose(self, agent: Agent) -> Chosen: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Briefing:
    """Everything a turn's model requests share. `tool_choice` is in wire form, for the first of them only."""

    agent: Agent
    chosen: Chosen
    instructions: str
    toolbox: Toolbox
    tool_choice: str | None
    output: OutputShape | None

    def request(
        self,
        messages: Sequence[Message],
        *,
        thread: str,
        beginnings: dict[str, Beginning],
        tool_choice: str | None = None,
        with_tools: bool = True,
        more_room: bool = False,
    ) -> ModelRequest:
        """A request over `messages`. `more_room`: twice the output limit, or else less thinking."""
        agent = self.agent
        effort = agent.reasoning.effort if agent.reasoning else None
        limit = agent.max_tokens
        if more_room and limit:
            limit *= 2
        elif more_room and effort:
            effort = _LESS_EFFORT.get(effort, effort)
        return ModelRequest(
            model=self.chosen.name,
            messages=messages,
            instructions=self.instructions,
            tools=self.toolbox.specs if with_tools else _NO_TOOLS,
            tool_choice=tool_choice if with_tools else None,
            output=self.output.format if self.output else None,
            temperature=agent.temperature,
            top_p=agent.top_p,
            max_tokens=limit,
            effort=effort,
            reasoning_summary=agent.reasoning.summary if agent.reasoning else None,
            truncation=agent.truncation,
            thread=thread,
            beginnings=beginnings,
        )


@dataclass(frozen=True, slots=True)
class _Company:
    """Calls tools of `guests` there, and all others at `hub`."""

    hub: Hub
    guests: Hub

    async def call(self, tool: Published, arguments: Payload, call: Call) -> Payload:
        where = self.guests if tool.server in self.guests.names() else self.hub
        return await where.call(tool, arguments, call)


class Briefs(Protocol):
    """Prepares agents for turns. What is open for a turn alone is put on `company`; the turn closes it."""

    async def prepare(self, agent: Agent, call: Call, company: AsyncExitStack) -> Briefing: ...


class Briefings:
    """Satisfies `Briefs`; keeps each agent's tools while the catalogue is unchanged."""

    def __init__(self, config: Config, models: ModelChoice, hub: Hub) -> None:
        self._config = config
        self._models = models
        self._hub = hub
        self._references: dict[str, tuple[Agent, tuple[Reference, ...]]] = {}
        self._kept: dict[str, tuple[Agent, Listing, Toolbox]] = {}
        self._outputs: dict[str, OutputShape] = {}

    async def prepare(
        self, agent: Agent, call: Call, company: AsyncExitStack, guests: Hub | None = None
    ) -> Briefing:
        """`guests`: servers of this turn alone; all tools of one that the agent does not name are offered.

        Raises `ConfigError` for a model or tool choice that cannot be had, `InstructionsFailed`.
        """
        chosen = self._models.choose(agent)
        if guests is None:
            listing = await self._hub.tools(self._referenced(agent), call.caller)
            toolbox = self._toolbox(agent, listing)
        else:
            listing = await self._with_guests(agent, guests, call)
            toolbox = self._new_toolbox(agent, listing, _Company(self._hub, guests))
        instructions = await read_instructions(agent, config=self._config, hub=self._hub, call=call)
        return Briefing(
            agent=agent,
            chosen=chosen,
            # The servers' names are added after the text was expanded: nothing foreign is ever expanded.
            instructions=instructions + _absence(listing.missing),
            toolbox=toolbox,
            tool_choice=_tool_choice(agent, toolbox),
            output=self._output(agent),
        )

    def _referenced(self, agent: Agent) -> tuple[Reference, ...]:
        kept = self._references.get(agent.id)
        if kept is not None and kept[0] is agent:
            return kept[1]
        built_in = system_tools(agent) if SYSTEM in self._hub.names() else []
        references = (*built_in, *agent.tools, *agent.mcp_servers)
        self._references[agent.id] = (agent, references)
        return references

    def _toolbox(self, agent: Agent, listing: Listing) -> Toolbox:
        kept = self._kept.get(agent.id)
        if kept is not None and kept[0] is agent and kept[1] is listing:
            return kept[2]
        toolbox = self._new_toolbox(agent, listing, self._hub)
        if kept is not None and kept[2].specs == toolbox.specs:
            # Another list, the same tools: their encoded form and the provider's cache stay good.
            toolbox.specs = kept[2].specs
        self._kept[agent.id] = (agent, listing, toolbox)
        return toolbox

    def _new_toolbox(self, agent: Agent, listing: Listing, hub: Calls) -> Toolbox:
        return Toolbox(
            listing,
            visible=lambda tool: may_see(agent, tool) and tool.is_for_models,
            colleagues=[self._config.agents[id] for id in agent.agents if id in self._config.agents],
            extensions=agent.tool_extensions,
            hub=hub,
        )

    async def _with_guests(self, agent: Agent, guests: Hub, call: Call) -> Listing:
        """What the agent has of configured servers, and of `guests` what none of those is called."""
        references = self._referenced(agent)
        theirs = [reference for reference in references if reference.server in guests.names()]
        named = {reference.server for reference in theirs}
        theirs += [Reference(name) for name in guests.names() if name not in named]
        ours = [reference for reference in references if reference.server not in guests.names()]
        own, added = await self._hub.tools(ours, call.caller), await guests.tools(theirs, call.caller)
        for name in added.by_name.keys() & own.by_name.keys():
            fields = {"clash": name, "kept": own.by_name[name].server, "dropped": added.by_name[name].server}
            log.warning("two servers offer one name", extra=fields)
        by_name = {**added.by_name, **own.by_name}
        items = tuple(by_name[name] for name in sorted(by_name))
        return Listing(items, own.missing + added.missing, by_name)

    def _output(self, agent: Agent) -> OutputShape | None:
        if agent.output is None:
            return None
        shape = self._outputs.get(agent.id)
        if shape is None:
            shape = self._outputs[agent.id] = OutputShape(agent.output)
        return shape


def _absence(missing: Sequence[Missing]) -> str:
    servers = sorted({gone.server for gone in missing if gone.is_failure or gone.code == "pending"})
    if not servers:
        return ""
    return f"\n\nThe tools of these MCP servers are not available at the moment: {', '.join(servers)}."


def _tool_choice(agent: Agent, toolbox: Toolbox) -> str | None:
    choice = agent.tool_choice
    match choice:
        case None | "":
            return None
        case "auto" | "none":
            return choice if toolbox.named else None
        case "required" if toolbox.named:
            return choice
        case "required":
            raise ConfigError(f"Agent {agent.id!r}: `toolChoice: required`, but the agent has no tools.")
        case _ if choice in toolbox.named:
            return toolbox.wire_names[choice]
        case _:
            known = ", ".join(toolbox.named) or "none"
            raise ConfigError(
                f"Agent {agent.id!r}: `toolChoice` names {choice!r}, which it does not have; tools: {known}."
            )
