"""`nanobot config`: check the configuration, and show what is in effect without its secrets."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nanobot.cli.options import ConfigChoice, config_options

if TYPE_CHECKING:
    from nanobot.config.load import Examined

EXIT_INVALID = 2


@click.group(name="config")
def config() -> None:
    """Check and show the configuration. Nothing is started or contacted."""


command = config


def _more_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option("--exclude-built-in-agents", is_flag=True, help="Leave out the agent `nanobot`.")(
        function
    )
    return click.option(
        "--profile",
        "profiles",
        multiple=True,
        metavar="NAME",
        help="Apply a profile; `NAME?` only if it exists.",
    )(function)


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@_more_options
@config_options
def check(
    choice: ConfigChoice,
    as_json: bool,
    strict: bool,
    exclude_built_in_agents: bool,
    profiles: tuple[str, ...],
) -> None:
    """Read everything and report what is wrong. Exit status 2 if there is an error."""
    examined = _examine(choice, profiles, builtin_agents=not exclude_built_in_agents, strict=strict)
    if as_json:
        findings = [diagnostic.as_json() for diagnostic in examined.diagnostics]
        click.echo(
            json.dumps(
                {"ok": examined.config is not None, "diagnostics": findings}, ensure_ascii=False, indent=2
            )
        )
    else:
        _print_findings(examined)
    if examined.config is None:
        sys.exit(EXIT_INVALID)
    if not as_json:
        agents, servers = len(examined.config.agents), len(examined.config.mcp_servers)
        click.echo(f"The configuration is valid: {agents} agent(s), {servers} MCP server(s).")


@config.command()
@click.option("--format", "format_", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
@click.option("--origin", is_flag=True, help="Add the place each value was written.")
@_more_options
@config_options
def show(
    choice: ConfigChoice, format_: str, origin: bool, exclude_built_in_agents: bool, profiles: tuple[str, ...]
) -> None:
    """Print the configuration in effect: everything merged, built-ins included, secrets as ***."""
    from nanobot.config.redact import redact

    examined = _examine(choice, profiles, builtin_agents=not exclude_built_in_agents, strict=False)
    _print_findings(examined)
    if examined.config is None:
        sys.exit(EXIT_INVALID)
    shown = redact(examined.config.document)
    origins = {path: str(at) for path, at in examined.config.origins.items()} if origin else {}
    if format_ == "json":
        click.echo(
            json.dumps(
                {"config": shown, "origins": origins} if origin else shown, ensure_ascii=False, indent=2
            )
        )
    else:
        from nanobot.config.yaml_dump import dump_yaml

        click.echo(dump_yaml(shown, origins), nl=False)


def _examine(
    choice: ConfigChoice, profiles: tuple[str, ...], *, builtin_agents: bool, strict: bool
) -> Examined:
    from nanobot.config.load import Selection, examine

    return examine(
        Selection(
            sources=choice.sources,
            env=os.environ,
            cwd=Path.cwd(),
            env_file=choice.env_file,
            set_env=choice.set_env,
            empty_env=choice.empty_env,
            agent=choice.agent,
            default_model=choice.default_model,
            profiles=profiles,
            builtin_agents=builtin_agents,
            strict=strict,
        )
    )


def _print_findings(examined: Examined) -> None:
    for diagnostic in examined.diagnostics:
        click.echo(str(diagnostic), err=True)
