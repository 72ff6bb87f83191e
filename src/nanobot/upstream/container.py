"""A server in a container: the command line that runs it, with everything closed that need not be open.

The engine is spoken to through its command line (`docker` or `podman`), never through its socket. Values of
variables go through the engine's own environment, so that no process list shows them.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from nanobot.config.model import McpServer, SandboxSettings
from nanobot.errors import ConfigError
from nanobot.upstream.definition import expand_in
from nanobot.upstream.process import Command

ENGINES: Final = ("docker", "podman")
ENGINE_VARIABLE: Final = "NANOBOT_CONTAINER_ENGINE"
INSTANCE_LABEL: Final = "ai.nanobot.instance"

MEMORY_BYTES: Final = 2 << 30
CPUS: Final = 2.0
PIDS: Final = 512

_CACHES = (".cache", ".npm", "go/pkg")
_INHERITED = ("PATH", "HOME", "USER", "LANG", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "TMPDIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A container engine of this machine. `env` is what its program needs of our environment."""

    program: str
    env: Mapping[str, str]

    @property
    def is_podman(self) -> bool:
        return Path(self.program).name == "podman"

    def command(self, server: str, *words: str) -> Command:
        """The engine's own `words` as something to run."""
        return Command(server=server, argv=[self.program, *words], env=self.env, cwd=Path("/"))


def find_engine(env: Mapping[str, str]) -> Engine:
    """The engine `NANOBOT_CONTAINER_ENGINE` names, else the first that is there. Raises `ConfigError`."""
    named = env.get(ENGINE_VARIABLE, "")
    for name in (named,) if named else ENGINES:
        if (program := shutil.which(name, path=env.get("PATH", os.defpath))) is not None:
            kept = {
                key: value
                for key, value in env.items()
                if key in _INHERITED or key.startswith(("DOCKER_", "CONTAINER_", "PODMAN_"))
            }
            return Engine(program=program, env=kept)
    wanted = f"{named!r} ({ENGINE_VARIABLE})" if named else " or ".join(ENGINES)
    raise ConfigError(
        f"it is to run in a container, and no container engine was found: {wanted} is not installed; "
        "it is never run without one instead"
    )


def run_command(
    server: McpServer,
    env: Mapping[str, str],
    plain: Command,
    *,
    engine: Engine,
    image: str,
    caches: Path,
    mounts: Sequence[tuple[Path, bool]],
    ports: Mapping[str, int],
    instance: str,
    name: str,
    workdir: str = "",
) -> Command:
    """`plain`, the server's process, as a container of `image`.

    `mounts`: folders at their own paths, and whether they can be changed. `caches`: a folder for this server
    alone. The container is called `name` and is removed when the command has ended, however it did. `workdir`
    is where it starts if the definition does not say.
    """
    settings = server.sandbox or SandboxSettings()
    words = ["run", "-i", "--rm", "--init", "--name", name, "--label", f"{INSTANCE_LABEL}={instance}"]
    words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only", "--tmpfs", "/tmp"]
    words += ["--pids-limit", str(settings.pids or PIDS), "--cpus", f"{settings.cpus or CPUS:g}"]
    words += ["--memory", str(settings.memory_bytes or MEMORY_BYTES)]
    words += ["--network", "none"] if settings.network == "none" else []
    words += user_words(engine)
    for cache in _CACHES:
        folder = caches / cache
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        words += ["-v", f"{folder}:/mcp/{cache}"]
    for path, may_change in mounts:
        words += ["-v", f"{path}:{path}" + ("" if may_change else ":ro")]
    if server.workdir:
        words += ["-w", expand_in(server, "workdir", server.workdir, env)]
    elif workdir:
        words += ["-w", workdir]
    for port in ports.values():
        words += ["-p", f"127.0.0.1:{port}:{port}"]
    own = {"HOME": "/mcp"} | _own_variables(server, env)
    passed = dict(engine.env)
    for variable, value in own.items():
        if variable in passed or variable == "HOME":  # the engine's program needs its own
            words += ["-e", f"{variable}={value}"]
        else:
            passed[variable] = value
            words += ["-e", variable]
    words += [*settings.extra_args, "--", image]
    words += plain.argv if server.command else plain.argv[1:]
    return replace(
        plain,
        argv=[engine.program, *words],
        env=passed,
        cwd=Path("/"),
        afterwards=(engine.program, "rm", "-f", name),
    )


def container_name() -> str:
    return f"nanobot-{secrets.token_hex(4)}"


def user_words(engine: Engine) -> list[str]:
    """Options that have a container run as who we are."""
    return ["-u", f"{os.getuid()}:{os.getgid()}", *(["--userns", "keep-id"] if engine.is_podman else [])]


def _own_variables(server: McpServer, env: Mapping[str, str]) -> dict[str, str]:
    return {
        expand_in(server, f"env.{name}", name, env): expand_in(server, f"env.{name}", value, env)
        for name, value in server.env.items()
    }


def instance_id() -> str:
    """Who we are, for the labels of our containers: machine, process, and when the process began."""
    return f"{socket.gethostname()}/{os.getpid()}/{_started(os.getpid())}"


def is_dead(instance: str) -> bool:
    """Whether the process of an `instance_id` is gone. Of other machines nothing is known: they live."""
    host, _, rest = instance.rpartition("/")[0].rpartition("/")
    began = instance.rpartition("/")[2]
    if host != socket.gethostname() or not rest.isdigit():
        return False
    try:
        os.kill(int(rest), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return began != _started(int(rest))


def _started(pid: int) -> str:
    """When a process began, in ticks since the machine started; "" where that cannot be known."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]
