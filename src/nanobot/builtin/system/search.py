"""Finding files and lines: what is asked and what is found, whoever does the looking."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from anyio import to_thread

from nanobot.builtin.system.programs import Programs
from nanobot.builtin.system.workspace import Workspace

Mode = Literal["content", "files_with_matches", "count"]

TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Scope:
    """Where to look: below `base`, a path relative to `root`. `exclude` is such a path too, or "" for none.

    What `.gitignore` files exclude is left out, and names that begin with a dot unless `hidden`.
    """

    root: Path
    base: str
    hidden: bool
    exclude: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Lines to look for. `glob` and `type` choose files ("": all); what `glob` chooses is never ignored."""

    pattern: str
    mode: Mode
    glob: str = ""
    type: str = ""
    ignore_case: bool = False
    multiline: bool = False
    before: int = 0
    after: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """One line found, or one around it (`matched` False).

    For `files_with_matches` a line stands for its file, for `count` its `number` is how many matched.
    """

    path: str
    number: int = 0
    matched: bool = True
    text: str = ""


async def find_files(programs: Programs, workspace: Workspace, scope: Scope) -> list[str]:
    """The files in `scope`, relative to its root, in no order."""
    from nanobot.builtin.system import ripgrep, walk

    program = programs.find("rg")
    if program is not None:
        return await ripgrep.find_files(program, programs, workspace, scope)
    return await to_thread.run_sync(partial(walk.find_files, scope))


async def find_lines(programs: Programs, workspace: Workspace, scope: Scope, query: Query) -> list[Line]:
    """The lines in `scope`, sorted by path. Raises `ToolFailed` for a bad pattern or type."""
    from nanobot.builtin.system import ripgrep, walk

    program = programs.find("rg")
    if program is not None:
        found = await ripgrep.find_lines(program, programs, workspace, scope, query)
    else:
        found = await to_thread.run_sync(partial(walk.find_lines, scope, query))
    return sorted(found, key=lambda line: line.path)


def scope_of(workspace: Workspace, path: str, home: Path, *, hidden: bool) -> Scope | None:
    """The scope below `path`; None if nothing is there. Raises `ToolFailed` if it leads outside."""
    with workspace.place(path) as place:
        if place.stat() is None:
            return None
        inside = place.path.is_relative_to(workspace.folder.path)
        root = workspace.folder.path if inside else workspace.own.path
        exclude = home.relative_to(root).as_posix() if home != root and home.is_relative_to(root) else ""
        return Scope(root, place.path.relative_to(root).as_posix(), hidden, exclude)
