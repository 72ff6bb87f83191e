"""`nanobot config`: what is wrong with it, what is in effect without its secrets, and what may be written."""

from __future__ import annotations

import json
import sys
from typing import IO, TYPE_CHECKING

import click

from nanobot.cli.options import ConfigChoice, config_options

if TYPE_CHECKING:
    from nanobot.config.document_schema import Kind
    from nanobot.config.load import Examined

EXIT_INVALID = 2


@click.group(name="config")
def config() -> None:
    """Check, show and describe the configuration. Nothing is started or contacted."""


command = config


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@config_options
def check(choice: ConfigChoice, as_json: bool, strict: bool) -> None:
    """Read everything and report what is wrong. Exit status 2 if there is an error."""
    from nanobot.config.load import examine

    examined = examine(choice.selection(strict=strict))
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
@config_options
def show(choice: ConfigChoice, format_: str, origin: bool) -> None:
    """Print the configuration in effect: everything merged, built-ins included, secrets as ***."""
    from nanobot.config.load import examine
    from nanobot.config.redact import redact

    examined = examine(choice.selection())
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


@config.command()
@click.argument("kind", type=click.Choice(["nanobot", "agent", "mcp"]), default="nanobot")
@click.option(
    "--output", type=click.File("w", encoding="utf-8", atomic=True), default="-", metavar="FILE",
    help="Write it to this file instead.",
)  # fmt: skip
def schema(kind: Kind, output: IO[str]) -> None:
    """Print the JSON Schema of a document, for editors.

    KIND is `nanobot` (a nanobot.yaml; the default), `agent` (the front matter of agents/<id>.md) or `mcp` (an
    mcp.json).
    """
    from nanobot.config.document_schema import document_schema

    json.dump(document_schema(kind), output, ensure_ascii=False, indent=2)
    output.write("\n")


def _print_findings(examined: Examined) -> None:
    for diagnostic in examined.diagnostics:
        click.echo(str(diagnostic), err=True)
