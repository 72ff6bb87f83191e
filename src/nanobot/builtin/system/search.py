"""Finding files and lines, with ripgrep where it is installed."""

from __future__ import annotations

from functools import partial

from anyio import to_thread

from nanobot.builtin.system import ripgrep, walk
from nanobot.builtin.system.programs import Programs
from nanobot.builtin.system.query import Line, Query, Scope
from nanobot.builtin.system.workspace import Workspace


async def find_files(programs: Programs, workspace: Workspace, scope: Scope) -> list[str]:
    """The files in `scope`, relative to its root, in no order."""
    program = programs.find("rg")
    if program is not None:
        return await ripgrep.find_files(program, programs, workspace, scope)
    return await to_thread.run_sync(partial(walk.find_files, scope))


async def find_lines(programs: Programs, workspace: Workspace, scope: Scope, query: Query) -> list[Line]:
    """The lines in `scope`, sorted by path. Raises `ToolFailed` for a bad pattern or type."""
    program = programs.find("rg")
    if program is not None:
        found = await ripgrep.find_lines(program, programs, workspace, scope, query)
    else:
        found = await to_thread.run_sync(partial(walk.find_lines, scope, query))
    return sorted(found, key=lambda line: line.path)
