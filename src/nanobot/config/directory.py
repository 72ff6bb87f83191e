"""A configuration directory: which files count, and the agents that are Markdown files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nanobot.config.diagnostics import Diagnostics
from nanobot.config.documents import read_text
from nanobot.config.front_matter import Markdown, parse_markdown
from nanobot.config.keys import AGENT_FILE, check_agent_id
from nanobot.config.nodes import Entries, Entry, Scalar
from nanobot.config.places import Origin
from nanobot.config.shapes import accept

BASE_NAMES = ("nanobot.yaml", "nanobot.yml", "nanobot.json")
MCP_NAMES = ("mcp.json", "mcp.yaml", "mcp.yml")
"""A document with MCP servers alone, in the form that many programs share."""
OLD_MCP_NAMES = tuple(
    f"{stem}.{suffix}" for stem in ("mcp-servers", "mcpServers") for suffix in ("yaml", "yml", "json")
)
"""Its predecessor: server → definition, without a section around."""
MAX_DEFINITIONS = 2_000


@dataclass(frozen=True, slots=True)
class File:
    """`label` is its name in messages: the directory as typed and the path below. `id`: without suffix."""

    path: Path
    label: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    path: Path
    base: File | None
    mcp: File | None
    old_mcp: File | None
    agents: tuple[File, ...]


def has_configuration(files: Found) -> bool:
    return any((files.base, files.mcp, files.old_mcp, files.agents))


def find_directory(directory: Path, label: str, found: Diagnostics) -> Found:
    """The files of `directory` that configure something; everything else in it is left alone."""
    return Found(
        directory,
        _only(BASE_NAMES, "base document", directory, label, found),
        _only(MCP_NAMES, "document of MCP servers", directory, label, found),
        _only(OLD_MCP_NAMES, "document of MCP servers", directory, label, found),
        _agent_files(directory, label, found),
    )


def _only(names: Sequence[str], what: str, directory: Path, label: str, found: Diagnostics) -> File | None:
    """The one file of these names; further ones are reported."""
    files = [
        File(directory / name, os.path.join(label, name)) for name in names if (directory / name).is_file()
    ]
    for extra in files[1:]:
        found.source(files[0].label)
        message = f"Both {files[0].label!r} and {extra.label!r} exist; a directory has one {what}."
        found.add("error", "duplicate-definition", Origin(extra.label, 1), message)
    return files[0] if files else None


def _agent_files(directory: Path, label: str, found: Diagnostics) -> tuple[File, ...]:
    folder = directory / "agents"
    try:
        with os.scandir(folder) as entries:
            names = sorted(
                entry.name
                for entry in entries
                if entry.name.endswith(".md")
                and not entry.name.startswith(".")
                and entry.name.lower() != "readme.md"
                and (not entry.is_dir())
            )
    except FileNotFoundError:
        return ()
    except NotADirectoryError:
        at = Origin(os.path.join(label, "agents"), 1)
        hint = "agents are files `agents/<id>.md`"
        found.add("warning", "source-error", at, "This is no directory; it is skipped.", hint=hint)
        return ()
    except OSError as e:
        at = Origin(os.path.join(label, "agents"), 1)
        found.add(
            "error",
            "source-error",
            at,
            f"The directory cannot be read: {e.strerror or 'input/output error'}.",
        )
        return ()
    if len(names) > MAX_DEFINITIONS:
        at = Origin(os.path.join(label, "agents"), 1)
        found.add("error", "source-error", at, f"More than {MAX_DEFINITIONS} agent files in one directory.")
        names = names[:MAX_DEFINITIONS]
    names.sort(key=lambda name: name.removesuffix(".md").encode("utf-8", "surrogateescape"))
    files: list[File] = []
    for name in names:
        file = File(folder / name, os.path.join(label, "agents", name), name.removesuffix(".md"))
        if file.path.exists():
            files.append(file)
        else:
            found.add(
                "warning", "source-error", Origin(file.label, 1), "This link leads nowhere; it is skipped."
            )
    return tuple(files)


def read_agents(files: Found, found: Diagnostics) -> dict[str, Entry]:
    """The normalised agents of the Markdown files, by id, in order of their ids."""
    agents: dict[str, Entry] = {}
    for file in files.agents:
        found.source(file.label)
        text = read_text(file.path, file.label, found)
        markdown = parse_markdown(text, file.label, found) if text is not None else None
        top = Origin(file.label, 1)
        # One that cannot be read is reported; it still exists, so that references to it are not reported too.
        agent = (
            _agent(file, markdown.meta, markdown, found) if markdown and markdown.meta else Entries({}, top)
        )
        agents[file.id] = Entry(top, agent)
    return agents


def _agent(file: File, meta: Entries, markdown: Markdown, found: Diagnostics) -> Entries:
    place = found.root.key("agents").key(file.id)
    top = Origin(file.label, 1)
    check_agent_id(file.id, top, place)
    agent = accept(AGENT_FILE, meta, place)
    assert isinstance(agent, Entries)
    entries = dict(agent.entries)
    written = entries.pop("id", None)
    if written is not None and isinstance(written.node, Scalar) and written.node.value != file.id:
        place.key("id").warning(
            "bad-id", written.node.at, f"The agent's id is its file name, {file.id!r}; this has no effect."
        )
    if markdown.body:
        if "instructions" in entries:
            message = "The text below the front matter is used instead of this."
            place.key("instructions").warning("ignored-key", entries["instructions"].key_at, message)
        at = Origin(file.label, markdown.body_line)
        entries["instructions"] = Entry(at, Scalar(markdown.body, at))
    return replace(agent, entries=entries)
