"""Which agents a person can talk to, and which one is the default."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from nanobot.config.diagnostics import Diagnostics
from nanobot.config.nodes import Entries, Entry, Items, Node, Scalar
from nanobot.config.places import Origin


def with_entrypoints(
    document: Entries,
    label: str,
    earlier: Mapping[str, Entry],
    markdown: Collection[str],
    found: Diagnostics,
) -> Entries:
    """`document` with `publish.entrypoint` completed by the agents it defines itself.

    Default first: the agent with `default: true`, else what `publish.entrypoint` begins with, else `main`,
    else the first by id. Markdown agents are entrypoints by being there; agents of a YAML document only if
    it has a single one or says `mode` or `default` for one of them. `earlier` agents belong to other sources.
    """
    agents = {
        id_: entry.node
        for id_, entry in _section(document, "agents").items()
        if id_ not in earlier and isinstance(entry.node, Entries)
    }
    written = {str(name.value): name for name in _names(_section(document, "publish").get("entrypoint"))}
    offered = _offered(agents, markdown, is_written=bool(written))
    default = _chosen_default(agents, found) or next(iter(written), None) or _first(offered)
    if default is None:
        return document
    at = next((name.at for name in written.values()), Origin(label, 1))
    names = dict.fromkeys((default, *written, *offered))
    items = tuple(written.get(n) or Scalar(n, agents[n].at if n in agents else at) for n in names)
    return _with_entrypoint(document, items, at)


def _offered(agents: Mapping[str, Entries], markdown: Collection[str], *, is_written: bool) -> list[str]:
    """The agents that are entrypoints without being named as such, sorted."""
    candidates: Mapping[str, Entries] = {i: agent for i, agent in agents.items() if i in markdown}
    if not candidates and not is_written:
        says_who = any({"mode", "default"} & agent.entries.keys() for agent in agents.values())
        candidates = agents if says_who or len(agents) == 1 else {}
    offered = (id_ for id_, agent in candidates.items() if _text(agent, "mode") != "subagent")
    return sorted(offered, key=lambda id_: id_.encode("utf-8", "surrogateescape"))


def _first(offered: list[str]) -> str | None:
    return "main" if "main" in offered else next(iter(offered), None)


def _with_entrypoint(document: Entries, items: tuple[Node, ...], at: Origin) -> Entries:
    section = document.entries.get("publish")
    publish = section.node if section and isinstance(section.node, Entries) else Entries({}, at)
    before = publish.entries.get("entrypoint")
    replaces = before is not None and isinstance(before.node, Items) and before.node.replaces
    entrypoint = Entry(before.key_at if before else at, Items(items, at, unique=True, replaces=replaces))
    publish = replace(publish, entries={**publish.entries, "entrypoint": entrypoint})
    entry = Entry(section.key_at if section else at, publish)
    return replace(document, entries={**document.entries, "publish": entry})


def _chosen_default(agents: Mapping[str, Entries], found: Diagnostics) -> str | None:
    """The agent that says `default: true`; two of them, or a subagent, is an error."""
    chosen: str | None = None
    for id_, agent in agents.items():
        default = agent.entries.get("default")
        if default is None or not isinstance(default.node, Scalar) or default.node.value is not True:
            continue
        place = found.root.key("agents").key(id_).key("default")
        if _text(agent, "mode") == "subagent":
            place.error(
                "bad-default", default.node.at, f"The agent {id_!r} is a subagent and cannot be the default."
            )
        elif chosen is not None:
            place.error(
                "bad-default", default.node.at, f"Two agents are the default: {chosen!r} and {id_!r}."
            )
        else:
            chosen = id_
    return chosen


def _section(document: Entries, key: str) -> Mapping[str, Entry]:
    entry = document.entries.get(key)
    return entry.node.entries if entry and isinstance(entry.node, Entries) else {}


def _names(entry: Entry | None) -> tuple[Scalar, ...]:
    if entry is None or not isinstance(entry.node, Items):
        return ()
    return tuple(item for item in entry.node.items if isinstance(item, Scalar))


def _text(agent: Entries, key: str) -> str:
    entry = agent.entries.get(key)
    return (
        entry.node.value
        if entry and isinstance(entry.node, Scalar) and isinstance(entry.node.value, str)
        else ""
    )
