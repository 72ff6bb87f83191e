"""Confinement of programs that a model or a configuration starts: a view of the machine made for one process.

Inside there is the operating system, read-only, a private `/tmp`, and the folders that were named, at
their own paths. Everything else does not exist: other homes, other processes, the network unless granted.
The environment is whatever the caller gives the process; giving it little is the caller's part.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Protocol

_PLACES = "/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin"
"""Where `bwrap` is looked for. Not in PATH: whoever can plant a program there would be the confiner."""

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/gnu")

_ETC = (
    "alternatives ca-certificates ca-certificates.conf crypto-policies debian_version fonts gai.conf group "
    "host.conf hosts inputrc java* ld.so.cache ld.so.conf ld.so.conf.d localtime locale.alias locale.conf "
    "login.defs magic mime.types networks nsswitch.conf os-release passwd perl pki protocols python3* "
    "resolv.conf rpc services shells ssl terminfo timezone xattr.conf"
).split()
"""What programs need of /etc. The rest holds the secrets of the machine."""

_SCRATCH = (Path("/tmp"), Path("/var/tmp"))

_SECRETS = (
    ".ssh .gnupg .aws .azure .kube .docker .config/gcloud .config/gh .password-store .netrc .git-credentials "
    ".npmrc .pypirc .cargo/credentials .cargo/credentials.toml .gem/credentials .config/op .vault-token"
).split()

_PROBE_S = 10

Mounts = dict[Path, tuple[str, ...]]
"""The options that make each visible path. An inner path's must come after those of an outer one."""


class Sandbox(Protocol):
    """Confines a program by starting it through another one."""

    def wrap(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        writable: Sequence[Path],
        network: bool,
        readable: Sequence[Path] = (),
        hidden: Sequence[Path] = (),
        shown: Mapping[Path, Path] | None = None,
    ) -> list[str]:
        """The command line that runs `argv` confined, in the folder `cwd`.

        Of nested paths the innermost decides: a `writable` folder inside a `hidden` one can be written, a
        `hidden` one inside a `writable` one is empty. `cwd` must lie in a visible path. Paths that do not
        exist are left out. An absolute `argv[0]` brings its installation along, read-only. `shown` are
        writable stand-ins: at the path of each key stands what is really at its value.
        """
        ...


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Linux namespaces through the program `bwrap`."""

    program: str
    system: Mounts = field(default_factory=lambda: _system(), repr=False)

    def wrap(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        writable: Sequence[Path],
        network: bool,
        readable: Sequence[Path] = (),
        hidden: Sequence[Path] = (),
        shown: Mapping[Path, Path] | None = None,
    ) -> list[str]:
        mounts = _opened(self.system, (*readable, *installation(argv[0])), writable, hidden)
        for place, real in (shown or {}).items():
            mounts[place] = ("--bind", str(real), str(place))
        options = [option for path in sorted(mounts, key=_depth) for option in mounts[path]]
        sealed = [path for path, mount in mounts.items() if mount[0] == "--tmpfs" and path not in _SCRATCH]
        if Path("/") not in mounts:
            sealed.append(Path("/"))
        for path in sealed:  # last: the mount points inside had to be made first
            options += ["--remount-ro", str(path)]
        return [
            self.program,
            "--unshare-user",
            "--unshare-ipc",
            "--unshare-pid",
            "--unshare-uts",
            "--unshare-cgroup-try",
            *(() if network else ("--unshare-net",)),
            "--die-with-parent",
            "--new-session",  # else a program could type into our terminal (TIOCSTI)
            "--cap-drop",
            "ALL",
            *options,
            "--chdir",
            str(cwd.resolve()),
            "--",
            *argv,
        ]


def find_sandbox() -> Sandbox | None:
    """A confiner that works on this machine, tried out (it takes some 20 ms); None if there is none."""
    program = shutil.which("bwrap", path=_PLACES)
    if program is None:
        return None
    sandbox = Bubblewrap(program)
    trial = sandbox.wrap(["true"], cwd=Path("/tmp"), writable=(), network=False)
    try:
        worked = subprocess.run(
            trial,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": _PLACES},
            timeout=_PROBE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return sandbox if worked.returncode == 0 else None


def secrets_of(home: Path) -> list[Path]:
    """What stays hidden of a person's home even if the whole home is opened."""
    return [home / name for name in _SECRETS]


def installation(program: str) -> list[Path]:
    """What the program at an absolute path needs, outside the system: itself, its prefix, its interpreter.

    A home or its `.local` is never taken for a prefix: too much else lives there. Version managers (pyenv,
    asdf, nodenv, …) put a folder `shims` on PATH; what a shim starts lies beside that folder.
    """
    if not program.startswith("/"):
        return []
    found: list[Path] = []
    for place in (Path(program), Path(program).resolve()):
        found.append(place)
        prefix = place.parent.parent
        if place.parent.name not in ("bin", "shims") or prefix in (
            Path("/"),
            Path.home(),
            Path.home() / ".local",
        ):
            continue
        found += [prefix, *_base_of(prefix)]
    return found


def _system() -> Mounts:
    """The operating system and this program's own interpreter."""
    mounts: Mounts = {
        Path("/proc"): ("--proc", "/proc"),
        Path("/dev"): ("--dev", "/dev"),
        **{path: ("--tmpfs", str(path)) for path in _SCRATCH},
    }
    etc = (path for path in Path("/etc").glob("*") if any(fnmatch(path.name, known) for known in _ETC))
    for path in (*map(Path, _SYSTEM), *etc):
        if path.is_symlink() and path.parent == Path("/"):
            mounts[path] = ("--symlink", str(path.readlink()), str(path))
        elif path.exists():
            mounts[path] = ("--ro-bind", str(path), str(path))
    for path in (Path(sys.prefix), Path(sys.base_prefix)):
        if not _is_system(path):
            mounts[path] = ("--ro-bind", str(path), str(path))
    return mounts


def _opened(
    system: Mounts, readable: Iterable[Path], writable: Iterable[Path], hidden: Iterable[Path]
) -> Mounts:
    """`system` with the given paths added; where one is named twice, the later kind holds."""
    mounts = dict(system)
    aliases: Mounts = {}
    for kind, paths in (("--ro-bind", readable), ("--bind", writable)):
        for path in paths:
            real = path.resolve()
            if os.path.exists(real) and (kind == "--bind" or not _is_system(real)):
                mounts[real] = (kind, str(real), str(real))
                if real != path.absolute():
                    aliases[path.absolute()] = (kind, str(real), str(path.absolute()))
    for path, mount in aliases.items():
        # Inside a visible folder the link itself is there and leads to the real place; on it nothing mounts.
        if not any(path.is_relative_to(outer) for outer, of in mounts.items() if of[0].endswith("bind")):
            mounts[path] = mount
    opened = [path for path, mount in mounts.items() if mount[0].endswith("bind")]
    for path in (*hidden, *secrets_of(Path.home())):
        real = path.resolve()
        if any(real.is_relative_to(outer) for outer in opened):
            if real.is_dir():
                mounts[real] = ("--tmpfs", str(real))
            elif real.exists():
                mounts[real] = ("--ro-bind", "/dev/null", str(real))
    return mounts


def _is_system(path: Path) -> bool:
    return any(path.is_relative_to(top) for top in _SYSTEM)


def _depth(path: Path) -> int:
    return len(path.parts)


def _base_of(prefix: Path) -> list[Path]:
    """The installation that a Python virtual environment borrows its interpreter from."""
    try:
        lines = (prefix / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    homes = [
        value.strip() for name, _, value in (line.partition("=") for line in lines) if name.strip() == "home"
    ]
    return [Path(home).parent for home in homes if Path(home).is_absolute()]
