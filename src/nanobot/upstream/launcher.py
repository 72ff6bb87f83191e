"""How the servers of a configuration are started: confined, with ports of their own where they need some."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio

from nanobot.config.model import McpServer, SandboxSettings
from nanobot.errors import ConfigError
from nanobot.http import Http
from nanobot.upstream.confinement import REFUSAL, Cage, Limits, private_folder, shared_folder
from nanobot.upstream.container import container_name, find_engine, instance_id, run_command
from nanobot.upstream.definition import Remote, Started, expand_in, expanded, port_variables
from nanobot.upstream.filter_proxy import PROXY_VARIABLES, open_filter_proxy, proxy_environment
from nanobot.upstream.image import IMAGE_VARIABLE, check_image, image_of, remove_stale
from nanobot.upstream.process import Child, Command, open_process
from nanobot.upstream.roots import CWD, Root
from nanobot.upstream.sandbox import Sandbox
from nanobot.upstream.secrecy import RecentSecrets
from nanobot.upstream.started import EndedTooSoon, answering

PORT_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """What starting needs of this machine. `sandbox` None: nothing here can confine a process.

    `home` holds the state of this installation; servers see nothing of it but folders of their own.
    """

    sandbox: Sandbox | None
    home: Path
    roots: Sequence[Root] = ()
    """Directories of the operator; containers see them."""
    recent: RecentSecrets = field(default_factory=RecentSecrets)
    """What servers were sent on behalf of callers: what they print is kept and logged without it."""
    building: anyio.Lock = field(default_factory=anyio.Lock)
    """One image is built at a time: two servers of one image must not build it twice."""

    def check(self, server: McpServer, env: Mapping[str, str]) -> Sequence[str]:
        """The secrets of the definition. Raises `ConfigError` if it cannot be used; starts nothing."""
        target = expanded(server, env, dict.fromkeys(server.ports, 1))
        if server.in_container:
            find_engine(env)
            check_image(server, env)
        elif not isinstance(target, Remote):
            self._confined(server, target.command if isinstance(target, Started) else target, env)
        return target.secrets

    async def prepare(self, server: McpServer, env: Mapping[str, str]) -> str:
        """The image of a server in a container, built if need be; "" of any other. May take many minutes."""
        if not server.in_container:
            return ""
        async with self.building:
            engine = find_engine(env)
            await remove_stale(engine, server.name)
            return await image_of(server, env, engine)

    @asynccontextmanager
    async def opened(
        self,
        server: McpServer,
        env: Mapping[str, str],
        http: Http,
        image: str = "",
        *,
        account: str = "",
    ) -> AsyncGenerator[Remote | Child]:
        """Where `server` is reached until the block ends: an address, or the pipes of its process.

        What the process keeps on disk is that of `account`.

        Raises `StartFailed`; `ConnectionLost` in the block when a process that serves HTTP ends.
        """
        if server.url and (server.command or server.in_container):
            async with self._serving(server, env, http, image, account) as remote:
                yield remote
            return
        target = expanded(server, env)
        assert not isinstance(target, Started)
        if isinstance(target, Remote):
            yield target
            return
        name = container_name()
        command = self._enclosed(server, target, env, image, {}, account, name)
        async with (
            _open(command, server.sandbox, self.recent) as child,
            _reversed(server, env, child, name),
        ):
            yield child

    @asynccontextmanager
    async def _serving(
        self, server: McpServer, env: Mapping[str, str], http: Http, image: str, account: str
    ) -> AsyncGenerator[Remote]:
        for attempt in range(1, PORT_ATTEMPTS + 1):
            # Somebody else may take a port between our looking and the server's: then others are tried.
            ports = free_ports(server.ports)
            target = expanded(server, env, ports)
            assert isinstance(target, Started)
            name = container_name()
            command = self._enclosed(server, target.command, env, image, ports, account, name)
            try:
                async with (
                    _open(command, server.sandbox, self.recent) as child,
                    _reversed(server, env, child, name),
                    answering(child, target.remote, http),
                ):
                    yield target.remote
                    return
            except EndedTooSoon:
                if attempt == PORT_ATTEMPTS:
                    raise

    def _enclosed(
        self,
        server: McpServer,
        command: Command,
        env: Mapping[str, str],
        image: str,
        ports: Mapping[str, int],
        account: str,
        name: str,
    ) -> Command:
        """`command` in a container called `name` or, of a server without one, confined on this machine."""
        if not server.in_container:
            return self._confined(server, command, env, account)
        settings = server.sandbox or SandboxSettings()
        return run_command(
            server,
            {**env, **port_variables(ports)},
            command,
            engine=find_engine(env),
            image=image,
            caches=_caches(self.home, server, settings, account).absolute(),
            mounts=[
                *((root.path, root.is_writable) for root in self.roots),
                *((path, False) for path in _paths(server, "sandbox.readable", settings.readable, env)),
                *((path, True) for path in _paths(server, "sandbox.writable", settings.writable, env)),
            ],
            ports=ports,
            instance=instance_id(),
            name=name,
            workdir=next(
                (str(root.path) for root in self.roots if root.name == CWD and not server.source), ""
            ),
        )

    def _confined(
        self, server: McpServer, command: Command, env: Mapping[str, str], account: str = ""
    ) -> Command:
        settings = server.sandbox
        if settings is None or server.command == "nanobot":
            return command
        if self.sandbox is None:
            raise ConfigError(REFUSAL)
        inner = {name: value for name, value in command.env.items() if name != "TMPDIR"}
        if settings.network != "host":
            inner = {name: value for name, value in inner.items() if name.upper() not in PROXY_VARIABLES}
        cage = Cage(
            sandbox=self.sandbox,
            home=self.home,
            private=private_folder(self.home, server.name, account),
            base_dir=server.base_dir,
            may_change_cwd=bool(server.cwd or server.workdir),
            readable=_paths(server, "sandbox.readable", settings.readable, env),
            writable=_paths(server, "sandbox.writable", settings.writable, env),
            network=settings.network == "host",
            limits=Limits(memory_bytes=settings.memory_bytes, cpus=settings.cpus, pids=settings.pids),
        )
        return replace(command, cage=cage, env=inner)


@asynccontextmanager
async def _open(
    command: Command, settings: SandboxSettings | None, recent: RecentSecrets
) -> AsyncGenerator[Child]:
    """The process of `command`, with its filtering proxy beside it if it is to have one."""
    if not isinstance(command.cage, Cage) or settings is None or settings.network != "proxy":
        async with open_process(command, recent=recent) as child:
            yield child
        return
    async with open_filter_proxy(settings.allow_hosts, server=command.server) as way_out:
        cage = replace(command.cage, proxy=way_out)
        env = {**command.env, **proxy_environment()}
        async with open_process(replace(command, cage=cage, env=env), recent=recent) as child:
            yield child


@asynccontextmanager
async def _reversed(
    server: McpServer, env: Mapping[str, str], child: Child, container: str
) -> AsyncGenerator[None]:
    """With the ways to the reverse ports of `server`, if it has any."""
    if not (server.in_container and server.reverse_ports):
        yield
        return
    from nanobot.upstream.reverse_ports import open_reverse_ports  # loads what makes certificates

    async with open_reverse_ports(
        server.reverse_ports,
        child,
        server=server.name,
        container=container,
        engine=find_engine(env),
        image=env[IMAGE_VARIABLE],
        instance=instance_id(),
    ):
        yield


def _caches(home: Path, server: McpServer, settings: SandboxSettings, account: str) -> Path:
    return (
        shared_folder(home, account) if settings.shared_cache else private_folder(home, server.name, account)
    )


def free_ports(names: Sequence[str]) -> dict[str, int]:
    """A free port of loopback for each name, all different. They are free when this returns, no longer."""
    with ExitStack() as held:
        ports: dict[str, int] = {}
        for name in names:
            listener = held.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            ports[name] = listener.getsockname()[1]
        return ports


def _paths(server: McpServer, place: str, texts: Sequence[str], env: Mapping[str, str]) -> list[Path]:
    """Paths written in a definition: `${NAME}` and `~` replaced, relative to its document."""
    found: list[Path] = []
    for text in texts:
        path = expand_in(server, place, text, env)
        if path == "~" or path.startswith("~/"):
            path = env.get("HOME", "/") + path[1:]
        found.append(server.base_dir.absolute() / path)
    return found
