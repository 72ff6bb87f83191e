"""From the references in a configuration to what they lead to on the shelves.

`server[/tool][:alias]` is settled once against the configuration (`settle`); what it yields is collected anew
whenever a shelf has changed (`collect`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nanobot.config.builtin import AGENTS, chat_tool
from nanobot.config.model import Config
from nanobot.config.places import Reference
from nanobot.hub.pipeline import rename
from nanobot.hub.prompts import INLINE_PROMPTS
from nanobot.hub.published import Missing, Published
from nanobot.wire.source import Kind


@dataclass(frozen=True, slots=True)
class Wanted:
    """A settled reference: which source, which of its things (None: all), under which name (None: its own).

    For resources and templates `thing` is a prefix of the URI.
    """

    server: str
    thing: str | None = None
    alias: str | None = None
    written: str = ""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two references yield one name; `kept` and `dropped` are servers."""

    name: str
    kept: str
    dropped: str


def agent_reference(agent_id: str) -> Reference:
    """The reference to an agent as a tool."""
    return Reference(AGENTS, chat_tool(agent_id))


def settle(
    references: Iterable[Reference], kind: Kind, config: Config, servers: Iterable[str]
) -> list[Wanted]:
    """What each reference means. A first part is an inline prompt (of prompts), a server, or an agent."""
    known = frozenset(servers)
    return [_settle(reference, kind, config, known) for reference in references]


def collect(
    wanted: Sequence[Wanted], kind: Kind, shelved: Callable[[str], Mapping[str, Published] | Missing]
) -> tuple[dict[str, Published], list[Missing], frozenset[Conflict]]:
    """Everything the references lead to by published name, sorted in byte order; what is missing; conflicts.

    `shelved` gives what a server has by final name. Of two things with one name the later reference wins,
    of two resources with one URI the earlier.
    """
    found: dict[str, Published] = {}
    missing: dict[str, Missing] = {}
    conflicts: set[Conflict] = set()
    first_wins = kind in ("resources", "templates")
    for want in wanted:
        things = shelved(want.server)
        if isinstance(things, Missing):
            missing.setdefault(want.server, things)
            continue
        selected = _select(want, kind, things)
        if isinstance(selected, Missing):
            missing.setdefault(want.written, selected)
            continue
        for thing in selected:
            other = found.get(thing.name)
            if other is not None and (other.server, other.own_name) != (thing.server, thing.own_name):
                kept, dropped = (other, thing) if first_wins else (thing, other)
                conflicts.add(Conflict(thing.name, kept.server, dropped.server))
                if first_wins:
                    continue
            found[thing.name] = thing
    in_order = {name: found[name] for name in sorted(found)}  # code points order as UTF-8 bytes do
    return in_order, list(missing.values()), frozenset(conflicts)


def _settle(reference: Reference, kind: Kind, config: Config, servers: frozenset[str]) -> Wanted:
    server, thing, alias, written = reference.server, reference.tool, reference.alias, str(reference)
    if kind in ("resources", "templates"):
        # A URI prefix has colons of its own; there are no aliases for URIs.
        prefix = thing if alias is None or thing is None else f"{thing}:{alias}"
        return Wanted(server, prefix, None, written)
    if kind == "prompts" and thing is None and server in config.prompts:
        return Wanted(INLINE_PROMPTS, server, alias, written)
    if kind == "tools" and server not in servers and server in config.agents:
        return Wanted(AGENTS, chat_tool(server), alias, written)
    return Wanted(server, thing, alias, written)


def _select(want: Wanted, kind: Kind, things: Mapping[str, Published]) -> Iterable[Published] | Missing:
    """The things of one server that one reference asks for, already under their published names."""
    if kind in ("resources", "templates"):
        if want.thing is None:
            return things.values()
        return [thing for name, thing in things.items() if name.startswith(want.thing)]
    if want.thing is not None:
        thing = things.get(want.thing)
        if thing is None:
            message = f"MCP server {want.server!r} has no {kind.removesuffix('s')} {want.thing!r}."
            return Missing(want.server, "not_found", message)
        return [_aliased(thing, want.alias)]
    if want.alias is None:
        return things.values()
    if len(things) != 1:
        message = (
            f"{want.written!r} gives the one name {want.alias!r} to {len(things)} {kind}; "
            f"write {want.server}/<name>:{want.alias}."
        )
        return Missing(want.server, "reference", message)
    return [_aliased(thing, want.alias) for thing in things.values()]


def _aliased(thing: Published, alias: str | None) -> Published:
    if alias is None or alias == thing.name:
        return thing
    return replace(thing, name=alias, listed_as=thing.name, definition=rename(thing.definition, alias))
