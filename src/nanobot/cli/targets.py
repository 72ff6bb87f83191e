"""`nanobot targets`: everything `nanobot call` can call."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from nanobot.cli.options import ConfigChoice, config_options
from nanobot.cli.output import encoded, output_option

if TYPE_CHECKING:
    from nanobot.config.model import Config


@click.command()
@click.option("-s", "--server", "servers", multiple=True, help="Only this server; may be repeated.")
@click.option("--status", is_flag=True, help="Show the state of each MCP server instead.")
@output_option
@config_options
def command(choice: ConfigChoice, servers: tuple[str, ...], status: bool, output: str) -> None:
    """List what can be called.

    A server that cannot be reached is a line on stderr and hides nothing else. With --status every server
    is connected to once; what is not built in is shown with its state.
    """
    import anyio

    from nanobot import logs

    if not choice.debug:
        logs.set_up(level="ERROR")  # what is missing is said in a line of its own
    anyio.run(_show_states if status else _list, choice.load(), servers, output)


async def _list(config: Config, servers: tuple[str, ...], output: str) -> None:
    from nanobot.app import open_app
    from nanobot.cli.text import shorten
    from nanobot.config.builtin import AGENTS
    from nanobot.config.places import Reference

    rows: list[dict[str, str]] = []
    if not servers:
        rows += [
            {"target": agent.id, "type": "agent", "description": agent.description or agent.display_name}
            for agent in config.agents.values()
        ]
    async with open_app(config) as app:
        names = [n for n in app.hub.names() if n != AGENTS and (not servers or n in servers)]
        for name in names:
            listing = await app.hub.tools([Reference(name)])
            for tool in listing.items:
                description = str(tool.definition.object().get("description") or "")
                rows.append({"target": f"{name}/{tool.name}", "type": "tool", "description": description})
            for missing in listing.missing:
                print(f"{missing.server}: {missing.message}", file=sys.stderr)
    for name in servers:
        if name not in names:
            print(f"{name}: there is no such server", file=sys.stderr)
    if output != "table":
        click.echo(encoded(rows, output), nl=False)
        return
    width = max((len(row["target"]) for row in rows), default=6)
    click.echo(f"{'TARGET':{width}}  {'TYPE':6} DESCRIPTION")
    for row in rows:
        click.echo(f"{row['target']:{width}}  {row['type']:6} {shorten(row['description'], 70)}")


async def _show_states(config: Config, servers: tuple[str, ...], output: str) -> None:
    from nanobot.aio import task_group
    from nanobot.app import open_app
    from nanobot.config.places import Reference
    from nanobot.server.status import server_json

    async with open_app(config) as app:
        names = [name for name in app.upstreams if not servers or name in servers]
        async with task_group() as group:
            for name in names:
                group.start_soon(app.hub.tools, [Reference(name)])
        rows = [server_json(app.upstreams[name].state(), app.hub.tool_count(name)) for name in names]
    for name in servers:
        if name not in names:
            print(f"{name}: there is no such server", file=sys.stderr)
    if output != "table":
        click.echo(encoded(rows, output), nl=False)
        return
    lines = [("SERVER", "KIND", "STATE", "PROTOCOL", "TOOLS", "ERROR")]
    lines += [
        (
            row["name"],
            row["kind"],
            row["state"],
            row["protocolVersion"] or "-",
            "-" if row["tools"] is None else str(row["tools"]),
            row["lastError"] or "",
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, [*widths, 0], strict=True)]
        click.echo("  ".join(cells).rstrip())
