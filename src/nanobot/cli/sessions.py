"""`nanobot sessions`: the stored conversations, without starting anything else."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from nanobot.cli.options import ConfigChoice, config_options, text
from nanobot.errors import NotFound

if TYPE_CHECKING:
    from nanobot.config.model import Config
    from nanobot.store import Threads
    from nanobot.store.rows import ThreadRow


def _asynchronous(function: Any) -> Any:
    """Run an async command body."""

    @wraps(function)
    def run(**options: Any) -> None:
        import anyio

        async def body() -> None:
            await function(**options)

        anyio.run(body)

    return run


@click.group()
def command() -> None:
    """List, show, rename and delete stored conversations. ID is an id or a key such as `cli:direct`."""


@command.command("list")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 1_000_000), default=50, show_default=True,
    help="How many, newest first.",
)  # fmt: skip
@config_options
@_asynchronous
async def list_(choice: ConfigChoice, limit: int) -> None:
    """List conversations, newest first."""
    from nanobot.cli.text import one_line

    async with _threads(choice.load()) as threads:
        for row in await threads.recent(limit=limit):
            key, title = one_line(row.key or "-"), one_line(row.title)
            click.echo(f"{row.id}  {row.updated[:16]:16}  {key:24}  {row.agent:16}  {title}")


@command.command("show")
@click.argument("id", type=text)
@config_options
@_asynchronous
async def show(choice: ConfigChoice, id: str) -> None:
    """Print a conversation."""
    from nanobot.agent.context.summary import is_summary
    from nanobot.cli.text import transcript
    from nanobot.llm.messages import decode_message

    async with _threads(choice.load()) as threads:
        row = await _find(threads, id)
        for stored in await threads.messages(row.id):
            message = decode_message(stored.raw)
            if not is_summary(message):
                click.echo(transcript(message))


@command.command("rename")
@click.argument("id", type=text)
@click.argument("title", type=text)
@config_options
@_asynchronous
async def rename(choice: ConfigChoice, id: str, title: str) -> None:
    """Give a conversation a title."""
    async with _threads(choice.load()) as threads:
        await threads.rename((await _find(threads, id)).id, title)


@command.command("delete")
@click.argument("id", type=text)
@config_options
@_asynchronous
async def delete(choice: ConfigChoice, id: str) -> None:
    """Delete a conversation and everything stored with it."""
    import shutil

    from nanobot.config.home import files_of

    config = choice.load()
    async with _threads(config) as threads:
        row = await _find(threads, id)
        await threads.delete(row.id)
    shutil.rmtree(files_of(config.home, row.id), ignore_errors=True)
    click.echo(f"Deleted {row.id}.")


@asynccontextmanager
async def _threads(config: Config) -> AsyncGenerator[Threads]:
    from nanobot.config.home import database_in
    from nanobot.store import open_store

    async with open_store(database_in(config.home)) as store:
        yield store.threads


async def _find(threads: Threads, id: str) -> ThreadRow:
    row = await threads.find(id)
    if row is None:
        raise NotFound(f"There is no conversation {id!r}; `nanobot sessions list` shows those there are.")
    return row
