"""The command line's root: a group whose commands are imported when they are used."""

from __future__ import annotations

from importlib import import_module

import click

from nanobot import __version__
from nanobot.cli.options import logging_options
from nanobot.cli.table import ALIASES, COMMANDS


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        return import_module(COMMANDS[name][0]).command if name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "NANOBOT"},
    help="Agents written as files, given tools by MCP servers, and offered as one MCP server, a web chat and "
    "a terminal chat.",
    epilog="`nanobot COMMAND --help` tells more. Without any configuration there is one agent; without any "
    "key it is answered by an offline demo model.",
)
@click.version_option(__version__, prog_name="nanobot")
@logging_options
def root(debug: bool, trace: bool) -> None:
    """Commands read what stands before their name (`config_options`)."""
