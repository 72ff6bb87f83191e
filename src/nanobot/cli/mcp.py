"""`nanobot mcp`: logging in to MCP servers that want it, and out again, from a terminal."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from nanobot.cli.options import ConfigChoice, config_options
from nanobot.errors import NanobotError, NotFound, UsageError

if TYPE_CHECKING:
    from nanobot.config.model import Config, McpServer
    from nanobot.upstream.oauth.authorizer import Authorizer
    from nanobot.upstream.oauth.client import OAuthClient


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
    """Log in to MCP servers, log out, and see where you are logged in."""


@command.command("list")
@config_options
@_asynchronous
async def list_(choice: ConfigChoice) -> None:
    """List the configured servers and whether there is a login for them."""
    config = choice.load()
    async with _client(config) as client:
        for server in config.mcp_servers.values():
            if not server.builtin:
                kind = "stdio" if server.command and not server.url else "http"
                click.echo(f"{server.name:24}  {kind:5}  {await _login_of(server, config, client)}")


@command.command("login")
@click.argument("name")
@click.option(
    "-p", "--port", default=0, metavar="PORT",
    help="Port of localhost that the browser comes back to (default: any free one).",
)  # fmt: skip
@config_options
@_asynchronous
async def login(choice: ConfigChoice, name: str, port: int) -> None:
    """Log in to the server NAME: prints an address to open, and waits until you have been there."""
    import anyio

    from nanobot.server.listener import open_listener
    from nanobot.server.oauth_callback import serving_callback
    from nanobot.upstream.oauth.client import callback_uri
    from nanobot.upstream.oauth.probe import find_challenge

    config = choice.load()
    server = _remote(config, name)
    listener = open_listener("localhost", port)
    try:
        async with _client(config, callback_uri("", listener.port)) as client:
            url = _url_of(server, config)
            challenge = await find_challenge(client.http, url)
            if challenge is None:
                click.echo(f"{name} wants no login.")
                return
            flow = await client.authorizer(server, url).begin_login(challenge)
            assert flow is not None
            click.echo(f"Open this address to log in to {name}:\n\n{flow.url}\n")
            async with serving_callback(listener, client):
                with anyio.move_on_after(flow.left_s):
                    await flow.done.wait()
            if flow.failure or not flow.done.is_set():
                raise NanobotError(f"Not logged in to {name}: {flow.failure or 'nobody came back in time'}.")
            click.echo(f"Logged in to {name}.")
    finally:
        listener.close()


@command.command("logout")
@click.argument("name")
@config_options
@_asynchronous
async def logout(choice: ConfigChoice, name: str) -> None:
    """Log out of the server NAME: its tokens are given back and forgotten."""
    config = choice.load()
    server = _remote(config, name)
    async with _client(config) as client:
        there_was_one = await client.authorizer(server, _url_of(server, config)).log_out()
    click.echo(f"Logged out of {name}." if there_was_one else f"There was no login for {name}.")


@asynccontextmanager
async def _client(config: Config, redirect_uri: str = "") -> AsyncGenerator[OAuthClient]:
    from nanobot.config.expand import expand
    from nanobot.config.home import database_in
    from nanobot.http import open_http
    from nanobot.store import open_store
    from nanobot.upstream.oauth.client import OAuthClient

    key = expand(config.auth.encryption_key, config.env)
    database = open_store(database_in(config.home), env=config.env, encryption_key=key)
    async with open_http() as http, database as store:
        yield OAuthClient(
            http=http,
            grants=store.grants,
            leases=store.leases,
            env=config.env,
            redirect_uri=redirect_uri,
        )


def _remote(config: Config, name: str) -> McpServer:
    server = config.mcp_servers.get(name)
    if server is None or server.builtin:
        known = ", ".join(s.name for s in config.mcp_servers.values() if not s.builtin) or "none"
        raise NotFound(f"There is no MCP server {name!r}; configured: {known}.")
    if server.command or not server.url:
        raise UsageError(f"{name!r} is started here; only servers with a url alone want a login.")
    return server


def _url_of(server: McpServer, config: Config) -> str:
    from nanobot.upstream.definition import Remote, expanded

    target = expanded(server, config.env)
    assert isinstance(target, Remote)
    return target.url


async def _login_of(server: McpServer, config: Config, client: OAuthClient) -> str:
    if server.command or not server.url:
        return "-"
    authorizer: Authorizer = client.authorizer(server, _url_of(server, config))
    if not await authorizer.load():
        return "not logged in"
    grant = authorizer.grant
    token = None if grant is None else grant.token
    if token is None or token.expires_at is None or token.refresh:
        return "logged in"
    until = datetime.fromtimestamp(token.expires_at, UTC).isoformat(timespec="minutes")
    return f"logged in until {until}" if token.expires_at > client.now() else f"expired at {until}"
