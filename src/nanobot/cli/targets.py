"""`nanobot targets`: everything `nanobot call` can call."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from nanobot.cli.options import ConfigChoice, config_options

if TYPE_CHECKING:
    from nanobot.config.model import Config


@click.command()
@click.option("-s", "--server", "servers", multiple=True, help="Only this server; may be repeated.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@config_options
def command(choice: ConfigChoice, servers: tuple[str, ...], output: str) -> None:
    """List what can be called.

    A server that cannot be reached is a line on stderr and hides nothing else.
    """
    import anyio

    anyio.run(_list, choice.load(), servers, output)


async def _list(config: Config, servers: tuple[str, ...], output: str) -> None:
    from nanobot.app import open_app
    from nanobot.cli.text import shorten
    from nanobot.config.builtin import AGENTS
    from nanobot.config.model import Reference

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
    if output == "json":
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    width = max((len(row["target"]) for row in rows), default=6)
    click.echo(f"{'TARGET':{width}}  {'TYPE':6} DESCRIPTION")
    for row in rows:
        click.echo(f"{row['target']:{width}}  {row['type']:6} {shorten(row['description'], 70)}")
