"""Which tools `nanobot.system` has, and what they share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nanobot.builtin.server import BuiltinServer
from nanobot.builtin.system.bash import bash_tool
from nanobot.builtin.system.edit import edit_tool
from nanobot.builtin.system.glob import glob_tool
from nanobot.builtin.system.grep import grep_tool
from nanobot.builtin.system.programs import Programs
from nanobot.builtin.system.read import read_tool
from nanobot.builtin.system.todo import todo_tool
from nanobot.builtin.system.workspace import Seen, Workspaces
from nanobot.builtin.system.write import write_tool
from nanobot.config.builtin import SYSTEM
from nanobot.upstream.sandbox import Sandbox, secrets_of


def system_server(
    *, home: Path, sandbox: Sandbox | None, env: Mapping[str, str], allow_unconfined: bool = False
) -> BuiltinServer:
    """Files, search, commands and to-do lists, each call in the folders of its own conversation.

    `env` is the environment of this process; programs get little of it. Without a `sandbox` the tool
    `bash` only says why it is off, unless `allow_unconfined`.
    """
    home = home.resolve()
    secrets = secrets_of(Path(env["HOME"])) if env.get("HOME") else ()
    workspaces = Workspaces(home, (home, *secrets))
    programs = Programs(sandbox, env)
    seen = Seen()
    return BuiltinServer(
        SYSTEM,
        [
            bash_tool(workspaces, programs, allowed=sandbox is not None or allow_unconfined),
            read_tool(workspaces, programs, seen),
            write_tool(workspaces, seen),
            edit_tool(workspaces, seen),
            glob_tool(workspaces, programs),
            grep_tool(workspaces, programs),
            todo_tool(workspaces),
        ],
    )
