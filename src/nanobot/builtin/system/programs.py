"""How tools start programs: confined where the platform can, with little of the environment."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nanobot.builtin.system import process
from nanobot.builtin.system.process import Sink
from nanobot.builtin.system.workspace import Workspace
from nanobot.upstream.sandbox import Sandbox

_PASSED = re.compile(r"PATH|LANG|LANGUAGE|LC_[A-Z]+|TZ|TERM|USER|LOGNAME|SHELL")
"""The variables that a program gets. Everything else may be a secret."""


@dataclass(frozen=True, slots=True)
class Programs:
    """`sandbox` None: programs run with the rights of this process. `env` is our own environment."""

    sandbox: Sandbox | None
    env: Mapping[str, str]

    def find(self, name: str) -> str | None:
        """The path of a program: one that was installed along with us, else from PATH."""
        beside = Path(sys.executable).with_name(name)
        return str(beside) if beside.exists() else shutil.which(name, path=self.env.get("PATH"))

    async def run(
        self,
        argv: Sequence[str],
        workspace: Workspace,
        *,
        cwd: Path,
        timeout_s: float,
        out: Sink,
        err: Sink | None = None,
        stdin: int = subprocess.DEVNULL,
        writable: bool = False,
    ) -> int:
        """`process.run` on the folders of `workspace`, without network; they can be changed if `writable`."""
        env = {name: value for name, value in self.env.items() if _PASSED.fullmatch(name)}
        if self.sandbox is None:
            env["HOME"] = self.env.get("HOME", "/")
        else:
            env["HOME"] = "/tmp"
            folders = [workspace.folder.path, workspace.own.path]
            argv = self.sandbox.wrap(
                argv,
                cwd=cwd,
                writable=folders if writable else (),
                readable=() if writable else folders,
                hidden=workspace.folder.hidden,
                network=False,
            )
        return await process.run(argv, cwd=cwd, env=env, timeout_s=timeout_s, out=out, err=err, stdin=stdin)
