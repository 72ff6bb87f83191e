"""From the values of `--config` to one normalised document each: files, directories, parents, profiles."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nanobot.config.diagnostics import Diagnostics
from nanobot.config.directory import File, Found, find_directory, has_configuration, read_agents
from nanobot.config.documents import read_document
from nanobot.config.entrypoints import with_entrypoints
from nanobot.config.keys import DOCUMENT, MCP_DOCUMENT
from nanobot.config.merge import merge_documents
from nanobot.config.nodes import Entries, Entry, Items, Node, Scalar, from_plain
from nanobot.config.places import Origin
from nanobot.config.shapes import accept

MAX_EXTENDS = 10
COMMAND_LINE = Origin("(command line)", 1)
SETTINGS_FILE = "settings.yaml"
"""In the home: the one document programs write. Merged last."""


@dataclass(frozen=True, slots=True)
class Source:
    """A place to read configuration from. `label` is what a person typed, used in every message.

    `may_be_empty`: the default place, where no configuration at all is fine.
    """

    label: str
    path: Path
    may_be_empty: bool = False


@dataclass(slots=True)
class Composed:
    """One document made of everything that was read. `folders`: directory of each file, by its label."""

    document: Entries
    folders: dict[str, Path] = field(default_factory=dict[str, Path])
    markdown_agents: set[str] = field(default_factory=set[str])


class Composer:
    """Reads sources and merges them; all that is wrong goes to `found`."""

    def __init__(self, found: Diagnostics, profiles: Sequence[str]) -> None:
        self._found = found
        self._profiles = profiles
        self._folders: dict[str, Path] = {}
        self._markdown: set[str] = set()
        self._known_profiles: set[str] = set()
        self._parents: dict[Path, Entries] = {}

    def compose(
        self, sources: Sequence[Source], settings: Path | None, overrides: Mapping[str, Any] | None = None
    ) -> Composed:
        """All `sources` merged from left to right, then the `settings` file if there is one, then what the
        command line `overrides`."""
        document = Entries({}, Origin("(nothing)", 1))
        for source in sources:
            one = self._with_profiles(self._read(source, (), source.may_be_empty))
            one = with_entrypoints(one, source.label, _agents(document), self._markdown, self._found)
            document = merge_documents(document, one)
        self._check_profiles(sources)
        if settings is not None and os.path.isfile(settings):
            last = self._read(Source(str(settings), settings), (), may_be_empty=False)
            document = merge_documents(document, self._with_profiles(last))
        if overrides:
            given = from_plain(dict(overrides), COMMAND_LINE)
            assert isinstance(given, Entries)
            document = merge_documents(document, self._normal(given))
        return Composed(document, self._folders, self._markdown)

    def _read(self, source: Source, chain: tuple[Path, ...], may_be_empty: bool) -> Entries:
        """`source` laid over everything it extends."""
        self._found.source(source.label)
        try:
            document = self._own(source, may_be_empty=may_be_empty)
        except OSError as e:
            message = f"{source.label!r} cannot be read: {e.strerror or 'input/output error'}."
            self._found.add("error", "source-error", Origin(source.label, 1), message)
            return Entries({}, Origin(source.label, 1))
        parents = document.entries.get("extends")
        if parents is None or not isinstance(parents.node, Items):
            return document
        document = replace(document, entries={k: e for k, e in document.entries.items() if k != "extends"})
        base = Entries({}, document.at)
        for item in parents.node.items:
            assert isinstance(item, Scalar)
            parent = self._parent(
                str(item.value), item.at, source, (*chain, Path(os.path.realpath(source.path)))
            )
            base = merge_documents(base, parent)
        return replace(merge_documents(base, document), at=document.at)

    def _own(self, source: Source, *, may_be_empty: bool) -> Entries:
        """What `source` says itself."""
        top = Origin(source.label, 1)
        if source.path.is_dir():
            return self._directory(source, may_be_empty=may_be_empty)
        if source.path.exists():
            return self._file(source.path, source.label)
        if not may_be_empty:
            self._found.add("error", "no-config", top, f"There is no file or directory {source.label!r}.")
        return Entries({}, top)

    def _parent(self, written: str, at: Origin, child: Source, chain: tuple[Path, ...]) -> Entries:
        """What `child` extends, read once however many documents extend it."""
        place = self._found.root.key("extends")
        written = written.strip()
        # Not `Path.resolve`: before Python 3.13 it raises RuntimeError where links form a circle.
        path = Path(os.path.realpath((child.path if child.path.is_dir() else child.path.parent) / written))
        if written.startswith("/") or "://" in written:
            place.error(
                "bad-extends", at, f"{written!r} must be a path relative to the document that names it."
            )
        elif path in chain:
            names = " → ".join(p.name for p in (*chain[chain.index(path) :], path))
            place.error("extends-cycle", at, f"Documents extend each other in a circle: {names}.")
        elif len(chain) > MAX_EXTENDS:
            place.error("bad-extends", at, f"More than {MAX_EXTENDS} documents extend one another.")
        elif not path.exists():
            place.error("bad-extends", at, f"{child.label!r} extends {written!r}, which does not exist.")
        else:
            if path not in self._parents:
                label = _label_beside(child, written)
                self._parents[path] = self._read(Source(label, path), chain, may_be_empty=False)
            return self._parents[path]
        return Entries({}, at)

    def _file(self, path: Path, label: str) -> Entries:
        self._found.source(label)
        self._folders[label] = path.parent
        written = read_document(path, label, self._found)
        return self._normal(written) if written else Entries({}, Origin(label, 1))

    def _normal(self, written: Entries) -> Entries:
        document = accept(DOCUMENT, written, self._found.root)
        return document if isinstance(document, Entries) else Entries({}, written.at)

    def _directory(self, source: Source, *, may_be_empty: bool) -> Entries:
        top = Origin(source.label, 1)
        files = find_directory(source.path, source.label, self._found)
        if not has_configuration(files):
            if not may_be_empty:
                self._found.add(
                    "error",
                    "no-config",
                    top,
                    f"The directory {source.label!r} holds no configuration.",
                    hint="it needs a nanobot.yaml, a mcp.json or an agents/<id>.md",
                )
            return Entries({}, top)
        document = self._file(files.base.path, files.base.label) if files.base else Entries({}, top)
        return self._with_markdown(self._with_servers(document, files), files)

    def _with_servers(self, document: Entries, files: Found) -> Entries:
        """`document` with the servers that stand in a document of their own; its own ones count first."""
        servers = dict(_section(document, "mcpServers"))
        if files.mcp is not None:
            self._unite(servers, self._servers(files.mcp))
        if (old := files.old_mcp) is not None:
            at = Origin(old.label, 1)
            if servers:
                message = "MCP servers are defined elsewhere in this directory, so this file is not read."
                self._found.add("warning", "ignored-key", at, message)
            else:
                message = "This file has an old name and form."
                hint = "put its servers under `mcpServers` in mcp.json"
                self._found.add("warning", "deprecated", at, message, hint=hint)
                self._unite(servers, self._servers(old, bare=True))
        if not servers:
            return document
        key_at = document.entries["mcpServers"].key_at if "mcpServers" in document.entries else document.at
        section = Entry(key_at, Entries(servers, key_at))
        return replace(document, entries={**document.entries, "mcpServers": section})

    def _unite(self, servers: dict[str, Entry], others: Mapping[str, Entry]) -> None:
        for name, entry in others.items():
            if name in servers:
                message = f"The server {name!r} is also defined at {servers[name].key_at}, which counts."
                place = self._found.root.key("mcpServers").key(name)
                place.warning("duplicate-definition", entry.key_at, message)
            else:
                servers[name] = entry

    def _servers(self, file: File, *, bare: bool = False) -> Mapping[str, Entry]:
        """The servers of a document of them; `bare`: without a section around."""
        self._found.source(file.label)
        self._folders[file.label] = file.path.parent
        written = read_document(file.path, file.label, self._found)
        if written is None:
            return {}
        if bare:
            at = Origin(file.label, 1)
            written = Entries({"mcpServers": Entry(at, written)}, at)
        document = accept(MCP_DOCUMENT, written, self._found.root)
        return _section(document, "mcpServers") if document is not None else {}

    def _with_markdown(self, document: Entries, files: Found) -> Entries:
        if not files.agents:
            return document
        agents = dict(_agents(document))
        for id_, agent in read_agents(files, self._found).items():
            self._folders[agent.key_at.source] = files.path / "agents"
            if id_ in agents:
                place = self._found.root.key("agents").key(id_)
                place.info(
                    "agent-replaced",
                    agent.key_at,
                    f"Replaces the agent of that name at {agents[id_].key_at}.",
                )
            agents[id_] = agent
        # Also the files that could not be read: the other agents' entrypoints must not depend on that.
        self._markdown.update(file.id for file in files.agents)
        at = document.entries["agents"] if "agents" in document.entries else Entry(document.at, document)
        entry = Entry(at.key_at, Entries(agents, at.node.at))
        return replace(document, entries={**document.entries, "agents": entry})

    def _with_profiles(self, document: Entries) -> Entries:
        """`document` with the selected profiles laid over it, and without the section that holds them."""
        section = document.entries.get("profiles")
        entries = {key: entry for key, entry in document.entries.items() if key != "profiles"}
        result = replace(document, entries=entries)
        if section is not None and isinstance(section.node, Entries):
            profiles = section.node.entries
            self._known_profiles.update(profiles)
            for name in self._profiles:
                profile = profiles.get(name.removesuffix("?"))
                if profile is not None and isinstance(profile.node, Entries):
                    result = merge_documents(result, profile.node)
        return result

    def _check_profiles(self, sources: Sequence[Source]) -> None:
        known = ", ".join(sorted(self._known_profiles)) or "none"
        at = Origin(sources[0].label if sources else "(nothing)", 1)
        for name in self._profiles:
            if not name.endswith("?") and name not in self._known_profiles:
                self._found.add(
                    "error", "unknown-profile", at, f"There is no profile {name!r}; known: {known}."
                )


def _agents(document: Node) -> Mapping[str, Entry]:
    return _section(document, "agents")


def _section(document: Node, key: str) -> Mapping[str, Entry]:
    section = document.entries.get(key) if isinstance(document, Entries) else None
    return section.node.entries if section and isinstance(section.node, Entries) else {}


def _label_beside(child: Source, written: str) -> str:
    """How a file named next to `child` is called in messages: as if it had been typed."""
    folder = child.label if child.path.is_dir() else os.path.dirname(child.label)
    return os.path.normpath(os.path.join(folder, written))
