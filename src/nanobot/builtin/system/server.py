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
from nanobot.builtin.system.workspace import Seen
from nanobot.builtin.system.write import write_tool
from nanobot.upstream.sandbox import Sandbox


def system_server(
    *, home: Path, sandbox: Sandbox | None, env: Mapping[str, str], allow_unconfined: bool = False
) -> BuiltinServer:
    """Files, search, commands and to-do lists, each call in the folders of its own conversation.

    `env` is the environment of this process; programs get little of it. Without a `sandbox` the tool
    `bash` only says why it is off, unless `allow_unconfined`.
    """
    home = home.resolve()
    programs = Programs(sandbox, env, home)
    seen = Seen()
    return BuiltinServer(
        "nanobot.system",
        [
            bash_tool(programs, allowed=sandbox is not None or allow_unconfined),
            read_tool(programs, seen),
            write_tool(home, seen),
            edit_tool(home, seen),
            glob_tool(programs),
            grep_tool(programs),
            todo_tool(home),
        ],
    )
