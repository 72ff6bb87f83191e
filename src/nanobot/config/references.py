"""References between parts of a configuration: `server[/tool][:alias]`, agent ids, models."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from nanobot.config import builtin
from nanobot.config.diagnostics import Place
from nanobot.config.places import Origin, Reference
from nanobot.config.shapes import nearest


@dataclass(frozen=True, slots=True)
class Known:
    """Everything one configuration defines and others may name."""

    servers: Collection[str]
    agents: Collection[str]
    prompts: Collection[str]
    providers: Collection[str]

    def tool(self, text: str, at: Origin, place: Place) -> Reference | None:
        """An entry of `tools`: a server, one of its tools, a built-in tool by its bare name, or an agent."""
        reference = _parse(text, at, place)
        if reference is None or reference.server in self.servers:
            return reference
        if reference.tool is None and (tool := builtin.SYSTEM_TOOLS.get(reference.server.lower())):
            return Reference(builtin.SYSTEM, tool, reference.alias)
        whole = text.partition(":")[0]
        if whole in self.agents:
            return Reference(whole, None, reference.alias)
        return self._unknown_server(reference, at, place, also=self.agents)

    def server(self, text: str, at: Origin, place: Place) -> Reference | None:
        """An entry of `mcpServers`, `resources` or `resourceTemplates`: a server or a part of it."""
        reference = _parse(text, at, place)
        if reference is None or reference.server in self.servers:
            return reference
        if reference.server in self.agents:
            message = f"{reference.server!r} is an agent, not an MCP server."
            place.error("unknown-server", at, message, "agents are listed under `agents`")
            return None
        return self._unknown_server(reference, at, place)

    def prompt(self, text: str, at: Origin, place: Place) -> Reference | None:
        """An entry of `prompts`: an inline prompt, a server, or one of its prompts."""
        reference = _parse(text, at, place)
        if reference is None or reference.server in self.servers:
            return reference
        if reference.tool is None and reference.server in self.prompts:
            return reference
        return self._unknown_server(reference, at, place, also=self.prompts)

    def agent(self, id_: str, at: Origin, place: Place) -> str | None:
        """The id of an agent that exists."""
        if id_ in self.agents:
            return id_
        if ":" in id_:
            place.error("bad-reference", at, f"{id_!r} must be an agent id alone, without tool or alias.")
        elif id_ in self.servers:
            place.error("unknown-agent", at, f"{id_!r} is an MCP server, not an agent.")
        else:
            place.error(
                "unknown-agent", at, f"There is no agent {id_!r}.", _suggest(id_, self.agents, "agents")
            )
        return None

    def model(self, name: str, at: Origin, place: Place) -> str:
        """A model string; its provider must be configured or known. `${…}` is left to whoever expands it."""
        provider, slash, _ = name.partition("/")
        is_literal = slash and "${" not in provider
        if is_literal and provider not in self.providers and builtin.dialect_of(provider) is None:
            hint = _suggest(provider, self.providers, "") or "define it under llmProviders"
            place.error(
                "unknown-provider",
                at,
                f"The model {name!r} names the provider {provider!r}, which does not exist.",
                hint,
            )
        return name

    def _unknown_server(
        self, reference: Reference, at: Origin, place: Place, also: Collection[str] = ()
    ) -> Reference | None:
        name = reference.server
        hint = _suggest(name, [*self.servers, *also], "") or "define it under mcpServers"
        if name.startswith(builtin.PREFIX):
            hint = f"built-in servers: {', '.join(sorted(builtin.SERVERS))}"
        place.error(
            "unknown-server", at, f"{str(reference)!r} refers to {name!r}, which does not exist.", hint
        )
        return None


def _parse(text: str, at: Origin, place: Place) -> Reference | None:
    target, colon, alias = text.partition(":")
    server, slash, tool = target.partition("/")
    if not server or (slash and not tool) or (colon and not alias):
        place.error("bad-reference", at, f"{text!r} is not of the form server[/tool][:alias].")
        return None
    return Reference(server, tool or None, alias or None)


def _suggest(name: str, known: Iterable[str], section: str) -> str:
    known = sorted(one for one in known if one != name)
    if near := nearest(name, {one: one for one in known}):
        return f"did you mean {near!r}?"
    return f"known {section}: {', '.join(known[:20])}" if section and known else ""
