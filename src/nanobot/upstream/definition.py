"""From what a person wrote about a server to what is done: every `${NAME}` replaced, every value checked."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from nanobot.config.expand import expand
from nanobot.config.model import McpServer
from nanobot.errors import ConfigError
from nanobot.upstream.process import Command

INHERITED: Final = ("PATH", "HOME", "USER")
"""What a child sees of our environment; everything else must be written into its `env`."""

SHORTEST_SECRET: Final = 6
"""A shorter value is left in messages: replacing each `1` or `debug` would only make them unreadable."""

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_REFERENCE = re.compile(r"\$\{([^{}:]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A server reached over HTTP. `headers` go with every request."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    secrets: Sequence[str] = field(default=(), repr=False)
    """Texts that must not reach a log or an error; longest first."""


def expanded(server: McpServer, env: Mapping[str, str]) -> Remote | Command:
    """How to reach `server` with the variables of `env`.

    Raises `ConfigError` naming server, field and variable; then nothing of the definition has been used.
    """
    if server.url and server.command:
        raise ConfigError(
            f"MCP server {server.name!r} has both url and command; servers that are started and then "
            "reached over HTTP are not supported yet, so keep one of the two."
        )
    if server.url:
        return _remote(server, env)
    if server.command:
        return _command(server, env)
    raise ConfigError(f"MCP server {server.name!r} has neither url nor command.")


def _remote(server: McpServer, env: Mapping[str, str]) -> Remote:
    url = _expand(server, "url", server.url, env)
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"The url of MCP server {server.name!r} must start with http:// or https://.")
    headers: dict[str, str] = {}
    for name, value in server.headers.items():
        place = f"headers.{name}"
        name = _expand(server, place, name, env)
        value = _expand(server, place, value, env)
        if not _HEADER_NAME.fullmatch(name) or not (value.isprintable() or value.isspace()):
            raise ConfigError(
                f"{place} of MCP server {server.name!r} cannot be sent: a header is one line of text."
            )
        headers[name] = value
    return Remote(url=url, headers=headers, secrets=_secrets([*headers.values(), *_referenced(server, env)]))


def _command(server: McpServer, env: Mapping[str, str]) -> Command:
    program = _expand(server, "command", server.command, env)
    argv = [sys.executable, "-m", "nanobot"] if server.command == "nanobot" else [program]
    argv += [_expand(server, f"args[{n}]", text, env) for n, text in enumerate(server.args)]
    own = {
        _expand(server, f"env.{name}", name, env): _expand(server, f"env.{name}", value, env)
        for name, value in server.env.items()
    }
    return Command(
        server=server.name,
        argv=argv,
        env={name: env[name] for name in INHERITED if name in env} | own,
        cwd=server.base_dir / _expand(server, "cwd", server.cwd, env),
        secrets=_secrets([*own.values(), *_referenced(server, env)]),
    )


def _expand(server: McpServer, place: str, text: str, env: Mapping[str, str]) -> str:
    try:
        return expand(text, env)
    except ConfigError as e:
        raise ConfigError(f"{place} of MCP server {server.name!r}: {e}") from e


def _referenced(server: McpServer, env: Mapping[str, str]) -> list[str]:
    """The values of all variables that the definition mentions."""
    texts = (
        *(server.url, server.command, server.cwd, *server.args),
        *(*server.env, *server.env.values(), *server.headers, *server.headers.values()),
    )
    return [env[name] for text in texts for name in _REFERENCE.findall(text) if name in env]


def _secrets(values: Iterable[str]) -> list[str]:
    return sorted({value for value in values if len(value) >= SHORTEST_SECRET}, key=len, reverse=True)
