"""What a configured server sees of the machine: enough for an ordinary program, nothing that is a person's.

It sees the operating system and installed language tools read-only, a home of its own in place of the real
one (at the same path, so that installed tools find themselves), its working folder, and the folders that
its definition names.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from nanobot.upstream.sandbox import Sandbox, installation, secrets_of

REFUSAL: Final = (
    "it is not started: servers run confined, and no working bubblewrap was found on this machine. Install "
    "it (Debian and Ubuntu: `apt install bubblewrap`; it needs user namespaces), or write `sandbox: off` for "
    "this server, and it runs with all the rights of this user"
)

_TOOLS = (
    ".local/bin .local/lib .local/pipx .local/share/uv .local/share/pipx .local/share/pnpm .local/share/mise "
    ".local/share/fnm .pyenv .nvm .fnm .volta .asdf .nodenv .rbenv .rustup .cargo/bin .bun/bin .deno/bin "
    ".npm-global .sdkman .dotnet go/bin"
).split()
"""Where people install languages and programs below their home."""

_OWN_STATE = (
    "nanobot.* *.db *.db-* *.env .env* settings.yaml config.json files servers sessions workspace processes "
    "agents cli-history *.key *.pem *token* *secret* audit* spool* logs"
).split()
"""What in our home is never opened because an argument names it."""

_PROGRAMS = (
    "*.py *.js *.mjs *.cjs *.ts *.mts *.sh *.rb *.pl *.lua package.json tsconfig.json pyproject.toml "
    "requirements*.txt node_modules src lib dist build bin scripts tools .venv venv"
).split()
"""What in our home may be shown, where it is also the folder of a server's program; the rest may be state."""

_MACHINE = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/etc",
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/boot",
    "/var/run",
)
"""What is never opened because an argument names it."""

_MAX_ENTRIES = 1000
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
_LOADER_VARIABLE = re.compile(r"LD_.*|GLIBC_.*|GCONV_PATH")
"""What would change the confiner itself if it stood in its environment."""

INSIDE: Final = Path(__file__).with_name("inside.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """For each process: `memory_bytes`. For all together: `cpus`, `pids`. None: those of the system."""

    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cage:
    """The confinement of one server. `home` is ours, `private` the server's own directory below it.

    `may_change_cwd`: a person wrote the working folder down. `base_dir` holds the document that declares the
    server; what contains it is never writable unless `writable` says so, or the server could rewrite its
    own confinement. `network` False: none at all. `proxy`: a socket that is its only way out.
    """

    sandbox: Sandbox
    home: Path
    private: Path
    base_dir: Path
    may_change_cwd: bool = False
    readable: Sequence[Path] = ()
    writable: Sequence[Path] = ()
    network: bool = True
    limits: Limits = Limits()
    proxy: Path | None = None

    def enter(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """The command line that runs `argv` confined, and the environment to run it in. Touches the disk."""
        cwd = cwd.resolve()
        person = Path(env.get("HOME") or "/nonexistent")
        found = shutil.which(str(cwd / argv[0]) if os.sep in argv[0] else argv[0], path=env.get("PATH"))
        program = found or argv[0]
        readable, writable = self._named(argv[1:], cwd, person)
        readable += [*_tools(person), *_on_path(env.get("PATH", ""), person), *installation(program)]
        explicit = {path.resolve() for path in (*self.readable, *self.writable)}
        shown = {} if person.resolve() in explicit or len(person.parts) <= 1 else {person: self._own("home")}
        if cwd in explicit:
            pass
        elif cwd == self.home.resolve():
            shown[cwd] = self._own("cwd")
            readable += self._beside_our_state()
        elif _is_too_wide(cwd, person):
            if len(cwd.parts) > 1:
                shown.setdefault(cwd, self._own("cwd"))
        elif self.may_change_cwd and not self._holds_us(cwd):
            writable.append(cwd)
        else:
            readable.append(cwd)
        if self.proxy is not None:
            shown[Path(PROXY_SOCKET)] = self.proxy
        outer = {name: value for name, value in env.items() if not _LOADER_VARIABLE.fullmatch(name)}
        inner = [f"{name}={value}" for name, value in env.items() if name not in outer]
        command = self._with_limits([program, *argv[1:]])
        if inner:
            command = ["/usr/bin/env", *inner, *command]
        wrapped = self.sandbox.wrap(
            command,
            cwd=cwd,
            network=self.network,
            readable=[*readable, INSIDE, *self.readable],
            writable=[*writable, *self.writable],
            hidden=[self.home, *secrets_of(person)],
            shown=shown,
        )
        return wrapped, outer

    def _with_limits(self, argv: list[str]) -> list[str]:
        """`argv` behind the small program that sets limits and opens the way to the proxy, if needed."""
        options: list[str] = []
        for name, value in (
            ("memory", self.limits.memory_bytes),
            ("cpus", self.limits.cpus),
            ("pids", self.limits.pids),
            ("proxy", self.proxy and PROXY_SOCKET),
        ):
            if value is not None:
                options += [f"--{name}", str(value)]
        return [sys.executable, "-I", "-S", str(INSIDE), *options, "--", *argv] if options else argv

    def _named(self, args: Sequence[str], cwd: Path, person: Path) -> tuple[list[Path], list[Path]]:
        """The folders and files that arguments name: readable ones and writable ones."""
        readable: list[Path] = []
        writable: list[Path] = []
        for text in args:
            path = _path_in(text, cwd)
            if path is None or _is_too_wide(path, person) or _is_of_the_machine(path) or self._is_ours(path):
                continue
            if path.is_dir():
                (readable if self._holds_us(path) else writable).append(path)
            elif path.is_file():
                readable += [path, *_beside(path, person, self.home.resolve())]
        return readable, writable

    def _is_ours(self, path: Path) -> bool:
        home = self.home.resolve()
        return path.is_relative_to(home) and (
            path == home or _is_any(path.relative_to(home).parts[0], _OWN_STATE)
        )

    def _holds_us(self, folder: Path) -> bool:
        return self.base_dir.resolve().is_relative_to(folder)

    def _own(self, name: str) -> Path:
        folder = self.private / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def _beside_our_state(self) -> list[Path]:
        """The programs that lie in our home."""
        entries = sorted(self.home.resolve().iterdir())[:_MAX_ENTRIES]
        return [
            entry
            for entry in entries
            if _is_any(entry.name, _PROGRAMS) and not _is_any(entry.name, _OWN_STATE)
        ]


PROXY_SOCKET: Final = "/run/nanobot/proxy"
"""Where the way out stands inside."""


def private_folder(home: Path, server: str, account: str = "") -> Path:
    """The directory below our home that belongs to `server` alone, whatever its name looks like.

    What it keeps there for one account is not seen by its processes for another.
    """
    plain = server if _PLAIN_NAME.fullmatch(server) else _digest(server)
    return home / "accounts" / _digest(account) / "servers" / plain if account else home / "servers" / plain


def shared_folder(home: Path, account: str = "") -> Path:
    """The directory below our home that belongs to all those servers that share one, for one account."""
    return (home / "accounts" / _digest(account) if account else home) / "caches"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def _is_any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _is_of_the_machine(path: Path) -> bool:
    return any(path.is_relative_to(top) for top in _MACHINE)


def _tools(person: Path) -> list[Path]:
    return [person / name for name in _TOOLS]


def _on_path(path: str, person: Path) -> list[Path]:
    """The folders of PATH, and the virtual environments that they belong to."""
    folders = [Path(text) for text in path.split(os.pathsep) if text.startswith("/")]
    found = [folder for folder in folders if not _is_too_wide(folder, person)]
    for folder in folders:
        if (folder.parent / "pyvenv.cfg").exists():
            found += installation(str(folder / "python"))
    return found


def _path_in(text: str, cwd: Path) -> Path | None:
    """The path that an argument (`/a`, `./a`, `a.py`, `--root=/a`) names; None if it is no path."""
    text = text.partition("=")[2] if text.startswith("-") else text
    if not text or len(text) > 4096 or "\0" in text or "\n" in text:
        return None
    try:
        path = (cwd / text).resolve()
        if not text.startswith(("/", ".")) and not path.is_file():  # a bare word may be called like a folder
            return None
        return path if path.exists() else None
    except OSError:
        return None


def _beside(file: Path, person: Path, home: Path) -> list[Path]:
    """What a script needs around it: its folder, and the packages it is one of."""
    parts = file.parts
    if "node_modules" in parts:
        return [Path(*parts[: parts.index("node_modules") + 1])]
    if _is_too_wide(file.parent, person) or file.parent in (home, Path("/tmp"), Path("/var/tmp")):
        return []
    return [file.parent]


def _is_too_wide(folder: Path, person: Path) -> bool:
    """Whether a folder holds so much else that only an explicit word opens it."""
    return person.is_relative_to(folder) or len(folder.parts) <= 1
