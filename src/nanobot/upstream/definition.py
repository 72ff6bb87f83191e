"""From what a person wrote about a server to what is done: every `${NAME}` replaced, every value checked."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nanobot.config.expand import expand
from nanobot.config.model import McpServer
from nanobot.errors import ConfigError
from nanobot.upstream.process import Command
from nanobot.upstream.secrecy import SHORTEST_SECRET

_INHERITED = re.compile(
    r"PATH|HOME|USER|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|(?:HTTP|HTTPS|ALL|NO)_PROXY|(?:http|https|all|no)_proxy"
)
"""What a child sees of our environment; everything else must be written into its `env`."""

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_REFERENCE = re.compile(r"\$\{([^{}:]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A server reached over HTTP. `headers` go with every request."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    secrets: Sequence[str] = field(default=(), repr=False)
    """Texts that must not reach a log or an error; longest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A server that we start and then reach over HTTP at `remote`."""

    command: Command
    remote: Remote

    @property
    def secrets(self) -> Sequence[str]:
        return self.command.secrets


def expanded(
    server: McpServer, env: Mapping[str, str], ports: Mapping[str, int] | None = None
) -> Remote | Command | Started:
    """How to reach `server` with the variables of `env`, and `ports` by their names.

    Raises `ConfigError` naming server, field and variable; then nothing of the definition has been used.
    """
    if ports:
        env = {**env, **port_variables(ports)}
    if server.url and (server.command or server.in_container):
        return Started(command=command_of(server, env), remote=_remote(server, env))
    if server.url:
        return _remote(server, env)
    if server.command or server.in_container:
        return command_of(server, env)
    raise ConfigError(f"MCP server {server.name!r} has neither url nor command.")


def secrets_of(server: McpServer, env: Mapping[str, str]) -> Sequence[str]:
    """Texts of the definition that nobody is to read; none of a definition that cannot be used."""
    try:
        return expanded(server, env, dict.fromkeys(server.ports, 1)).secrets
    except ConfigError:
        return ()


def digest(server: McpServer) -> str:
    """Stands for what the server is, whatever it is called here. Variables count by their names only."""
    facts = (
        *(server.url, server.command, server.args, server.cwd, server.workdir, sorted(server.env)),
        *(server.image, server.dockerfile, server.source, server.transport, str(server.base_dir.absolute())),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def port_variables(ports: Mapping[str, int]) -> dict[str, str]:
    """What `${port:NAME}` and `${nanobot:port:NAME}` are."""
    return {f"{kind}:{name}": str(port) for name, port in ports.items() for kind in ("port", "nanobot:port")}


def _remote(server: McpServer, env: Mapping[str, str]) -> Remote:
    url = expand_in(server, "url", server.url, env)
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"The url of MCP server {server.name!r} must start with http:// or https://.")
    headers: dict[str, str] = {}
    for name, value in server.headers.items():
        if name in server.personal_headers:
            continue
        place = f"headers.{name}"
        name = expand_in(server, place, name, env)
        value = expand_in(server, place, value, env)
        check_header(server, place, name, value)
        headers[name] = value
    return Remote(url=url, headers=headers, secrets=_secrets([*headers.values(), *_referenced(server, env)]))


def check_header(server: McpServer, place: str, name: str, value: str) -> None:
    """Raise `ConfigError`, naming `place`, for what is no header."""
    if not _HEADER_NAME.fullmatch(name) or not (value.isprintable() or value.isspace()):
        raise ConfigError(
            f"{place} of MCP server {server.name!r} cannot be sent: a header is one line of text."
        )


def command_of(server: McpServer, env: Mapping[str, str]) -> Command:
    """The process of a server, not confined."""
    program = expand_in(server, "command", server.command, env)
    argv = _ourselves(env) if server.command == "nanobot" else [program]
    argv += [expand_in(server, f"args[{n}]", text, env) for n, text in enumerate(server.args)]
    own = {
        expand_in(server, f"env.{name}", name, env): expand_in(server, f"env.{name}", value, env)
        for name, value in server.env.items()
    }
    inherited = {name: value for name, value in env.items() if _INHERITED.fullmatch(name)}
    return Command(
        server=server.name,
        argv=argv,
        env=inherited | own,
        cwd=server.base_dir / _working_folder(server, env),
        secrets=_secrets([*own.values(), *_proxies(inherited), *_referenced(server, env)]),
    )


def _ourselves(env: Mapping[str, str]) -> list[str]:
    """How this program is started again; `NANOBOT_BIN` says it otherwise."""
    return [env["NANOBOT_BIN"]] if env.get("NANOBOT_BIN") else [sys.executable, "-m", "nanobot"]


def _working_folder(server: McpServer, env: Mapping[str, str]) -> str:
    if server.cwd or not server.workdir:
        return expand_in(server, "cwd", server.cwd, env)
    return expand_in(server, "workdir", server.workdir, env)


def _proxies(env: Mapping[str, str]) -> list[str]:
    """Addresses of proxies, which may hold a password."""
    return [value for name, value in env.items() if name.lower().endswith("_proxy") and "@" in value]


def expand_in(server: McpServer, place: str, text: str, env: Mapping[str, str]) -> str:
    """`text` of the field `place` expanded. Raises `ConfigError` that names both."""
    try:
        return expand(text, env)
    except ConfigError as e:
        raise ConfigError(f"{place} of MCP server {server.name!r}: {e}") from e


def _referenced(server: McpServer, env: Mapping[str, str]) -> list[str]:
    """The values of all variables that the definition mentions."""
    texts = (
        *(server.url, server.command, server.cwd, server.workdir, *server.args),
        *(*server.env, *server.env.values(), *server.headers, *server.headers.values()),
    )
    return [env[name] for text in texts for name in _REFERENCE.findall(text) if name in env]


def _secrets(values: Iterable[str]) -> list[str]:
    return sorted({value for value in values if len(value) >= SHORTEST_SECRET}, key=len, reverse=True)
