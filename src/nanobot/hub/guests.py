"""MCP servers that are there for one turn: what a hook says of them, and a hub over them while it runs.

The operator did not write them down, so they are not trusted: remote alone, on public addresses alone, with
the headers that the hook gave and nothing of ours. Nobody can log in to them, and they are lent no model.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from nanobot.aio import task_group
from nanobot.config import builtin
from nanobot.config.model import Config, McpServer
from nanobot.errors import ConfigError
from nanobot.hub.hub import Hub
from nanobot.hub.sampling import sampled
from nanobot.upstream.pools import Connect, Pools
from nanobot.wire.source import Source

MOST_GUESTS: Final = 20
MOST_HEADERS: Final = 50
_NAME: Final = re.compile(r"[^\s/:,]{1,64}")
LONGEST: Final = 8192
"""Characters of an address or a header."""

OpenGuests = Callable[[Mapping[str, McpServer]], AbstractAsyncContextManager[Hub]]
"""A hub over servers that are connected when first needed, and closed when the block ends."""


class _Guest(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    headers: dict[str, str] = {}


def guest_servers(answer: Any, config: Config, *, by: str) -> Mapping[str, McpServer]:
    """The servers of `{name: {url, headers}}`, as `by` gave it. Raises `ConfigError`."""
    if answer is None:
        return {}
    try:
        guests = msgspec.convert(answer, dict[str, _Guest])
    except msgspec.ValidationError as e:
        raise ConfigError(f"{by} adds MCP servers that are not {{name: {{url, headers}}}}: {e}.") from e
    if len(guests) > MOST_GUESTS:
        raise ConfigError(f"{by} adds {len(guests)} MCP servers; at most {MOST_GUESTS} are possible.")
    return {name: _server(name, guest, config, by) for name, guest in guests.items()}


@asynccontextmanager
async def open_guests(
    servers: Mapping[str, McpServer],
    *,
    config: Config,
    connect: Connect,
    around: Callable[[Mapping[str, Source]], Mapping[str, Source]],
) -> AsyncGenerator[Hub]:
    """A hub over `servers` alone; `around` puts around them what stands around every server."""
    pools = Pools([*servers.values()], connect, sessions=config.sessions)
    here = replace(config, mcp_servers=MappingProxyType({**servers}), prompts=MappingProxyType({}))
    hub = Hub(here, sampled(around(pools), servers, None), personal=pools.personal())
    async with task_group() as owner:
        await owner.start(pools.run)
        await owner.start(hub.run)
        try:
            yield hub
        finally:
            owner.cancel_scope.cancel()


def _server(name: str, guest: _Guest, config: Config, by: str) -> McpServer:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{by} adds an MCP server with the name {name[:64]!r}, which cannot be referred to."
        )
    where = _host(name, guest.url, by)
    if (other := config.mcp_servers.get(name)) is not None and not other.builtin:
        raise ConfigError(
            f"{by} adds the MCP server {name!r} at {where}, but {name!r} is already an MCP server of the "
            f"configuration ({other.origin}); the hook has to choose another name."
        )
    if name in config.agents or name in builtin.SERVERS or name.startswith(builtin.PREFIX):
        what = "an agent" if name in config.agents else "a name of the program"
        raise ConfigError(f"{by} adds the MCP server {name!r} at {where}, but {name!r} is already {what}.")
    texts = [text for pair in guest.headers.items() for text in pair]
    if len(guest.headers) > MOST_HEADERS or any(len(text) > LONGEST for text in texts):
        raise ConfigError(f"{by} adds the MCP server {name!r} with too many or too long headers.")
    return McpServer(
        name=name, url=guest.url, headers=guest.headers, sampling="off", sharing="account", is_trusted=False
    )


def _host(name: str, url: str, by: str) -> str:
    """The host of `url`: of an address, what can be told without telling secrets."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts = host = None
    if parts is None or not host or parts.scheme not in ("http", "https") or len(url) > LONGEST:
        raise ConfigError(f"{by} adds the MCP server {name!r} with a url that is no http(s):// address.")
    return host
