"""`nanobot hooks`: help with writing hooks."""

from __future__ import annotations

import click


@click.group(name="hooks")
def hooks() -> None:
    """Help with writing hooks."""


command = hooks


@hooks.command()
def types() -> None:
    """Print the TypeScript types of everything hooks are given and may answer.

    `nanobot hooks types > hooks.ts` puts them beside your hooks.
    """
    from importlib.resources import files

    text = files("nanobot.hub.hooks").joinpath("hooks.ts").read_text(encoding="utf-8")
    click.echo(text, nl=False)
