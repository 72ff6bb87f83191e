"""Writes the reference pages from the code, or (`--check`) says which of them are out of date.

python docs/generate.py [--check]
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from nanobot.builtin.system import system_server
from nanobot.cli.root import root
from nanobot.cli.table import COMMANDS
from nanobot.config.help import HELP
from nanobot.config.keys import DOCUMENT
from nanobot.config.shapes import (
    Duration,
    Flag,
    Free,
    Later,
    ListOf,
    MapOf,
    Names,
    Number,
    Shape,
    Table,
    Text,
    TextOr,
)

HERE = Path(__file__).parent / "reference"
NOTE = "<!-- Written by `make docs` from the code; edit that. -->\n\n"


def configuration() -> str:
    lines = [
        "# Configuration keys\n",
        "Keys may be written in camelCase, snake_case or kebab-case. `*` stands for a name of your choice.\n",
        "| Key | Value | Meaning |",
        "|---|---|---|",
    ]
    rows = list(_keys(DOCUMENT, ""))
    if unknown := set(HELP) - {path for path, _ in rows}:
        raise SystemExit(f"config/help.py describes keys that do not exist: {sorted(unknown)}")
    for path, shape in rows:
        if path not in HELP:
            raise SystemExit(f"config/help.py has no sentence for {path!r}")
        lines.append(f"| `{path}` | {_kind(shape)} | {HELP[path]} |")
    return "\n".join(lines) + "\n"


def _keys(shape: Shape, path: str) -> Iterator[tuple[str, Shape]]:
    """Every path below `shape`, each once; what may nest without end is followed once."""
    match shape:
        case Table():
            for key, inner in shape.keys.items():
                here = f"{path}.{key}" if path else key
                yield here, inner
                if here != "profiles":  # the same keys again
                    yield from _keys(inner, here)
        case MapOf() if not path.endswith(".*.fields"):  # fields of fields look like fields
            yield from _keys(shape.shape, f"{path}.*")
        case ListOf():
            yield from _keys(shape.shape, f"{path}.*")
        case TextOr():
            yield from _keys(shape.other, path)
        case Later():
            yield from _keys(shape.shape(), path)
        case _:
            pass


def _kind(shape: Shape) -> str:
    match shape:
        case Text(words=words) if words:
            return ", ".join(f"`{word}`" for word in words if word)
        case Text():
            return "text"
        case Flag():
            return "`true` or `false`"
        case Number(whole=whole):
            return "whole number" if whole else "number"
        case Duration():
            return "seconds, or `90s`, `15m`"
        case Names():
            return "list of names"
        case Table():
            return "section"
        case MapOf(shape=Text()):
            return "name: text"
        case MapOf():
            return "section by name"
        case TextOr(said=said):
            return f"text, or {said}"
        case Free():
            return "anything"
        case _:
            return ""


def commands() -> str:
    parts = ["# Commands\n"]
    context = click.Context(root, info_name="nanobot")
    for name in COMMANDS:
        command = root.get_command(context, name)
        assert command is not None
        parts.append(
            _help(command, click.Context(command, info_name=f"nanobot {name}"), f"## nanobot {name}")
        )
        if isinstance(command, click.Group):
            for sub, inner in command.commands.items():
                title = f"### nanobot {name} {sub}"
                parts.append(_help(inner, click.Context(inner, info_name=f"nanobot {name} {sub}"), title))
    return "\n".join(parts)


def _help(command: click.Command, context: click.Context, title: str) -> str:
    context.max_content_width = 100
    context.terminal_width = 100
    return f"{title}\n\n```text\n{command.get_help(context)}\n```\n"


def tools() -> str:
    server = system_server(home=Path("/home"), sandbox=None, env={})
    entries = asyncio.run(server.listing("tools"))
    lines = ["# Built-in tools\n", f"## {server.name}\n"]
    for entry in entries:
        tool = entry.definition.object()
        lines += [f"### {entry.key}\n", tool["description"] + "\n"]
        lines += ["| Argument | Type | Meaning |", "|---|---|---|"]
        required = tool["inputSchema"].get("required", [])
        for name, schema in tool["inputSchema"]["properties"].items():
            mark = " (required)" if name in required else ""
            lines.append(f"| `{name}`{mark} | {schema.get('type', '')} | {schema.get('description', '')} |")
        lines.append("")
    return "\n".join(lines)


PAGES = {"configuration.md": configuration, "commands.md": commands, "tools.md": tools}


def main() -> int:
    stale: list[str] = []
    for name, write in PAGES.items():
        page, text = HERE / name, NOTE + write()
        if page.exists() and page.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            HERE.mkdir(exist_ok=True)
            page.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"out of date: {', '.join(stale)}; run `make docs`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
