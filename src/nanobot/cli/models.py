"""`nanobot models`: which models can be used now, and which is used where none is named."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, assert_never

import click

from nanobot.cli.options import ConfigChoice, config_options
from nanobot.cli.output import encoded, output_option

if TYPE_CHECKING:
    from nanobot.config.model import Config
    from nanobot.llm.available import Available
    from nanobot.llm.router import DefaultModel


@click.command()
@output_option
@config_options
def command(choice: ConfigChoice, output: str) -> None:
    """List the models that can be used, and which is used by agents that name none.

    Every provider that has a key is asked for its models, and so are the usual model servers of this
    machine. A provider that does not answer is a line on stderr and hides nothing else.
    """
    import anyio

    anyio.run(_list, choice.load(), output)


async def _list(config: Config, output: str) -> None:
    from nanobot.cli.text import one_line
    from nanobot.config.model import Agent
    from nanobot.errors import ConfigError
    from nanobot.http import open_http
    from nanobot.llm.available import find_available
    from nanobot.llm.router import Models

    async with open_http() as http:
        models = Models(config, http)
        await models.start()
        found = await find_available(models, http, config.env)
    default = models.explained_default()
    for provider, message in found.silent.items():
        print(f"{provider}: {one_line(message)}", file=sys.stderr)
    try:
        models.choose(Agent(id="default"))
    except ConfigError as e:
        print(f"The default model cannot be used: {one_line(str(e))}", file=sys.stderr)
    if output != "table":
        rows = [{key: value for key, value in asdict(model).items() if value} for model in found.models]
        click.echo(encoded({"default": asdict(default), "models": rows}, output), nl=False)
        return
    click.echo(f"Default: {one_line(default.model)}. {_why(default)}\n")
    names = [one_line(model.model) for model in found.models]
    width = max(map(len, ("MODEL", *names)))
    click.echo(f"{'MODEL':{width}}  FROM")
    for name, model in zip(names, found.models, strict=True):
        click.echo(f"{name:{width}}  {_origin(model)}")


def _why(default: DefaultModel) -> str:
    match default.why:
        case "named":
            return "It is named (`--default-model` or NANOBOT_DEFAULT_MODEL)."
        case "key":
            return "None is named; this provider has a key."
        case "local":
            return "None is named, and no provider has a key; this server of this machine answers."
        case "nothing":
            return "None is named, no provider has a key, and no model server of this machine answers."
        case _:
            assert_never(default.why)


def _origin(model: Available) -> str:
    match model.source:
        case "key":
            return "a provider with a key"
        case "configured":
            return "llmProviders"
        case "local":
            return model.address
        case "built-in":
            return "nanobot, offline"
        case _:
            assert_never(model.source)
