"""What is looked for in files, where, and what is found; whoever does the looking."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nanobot.builtin.system.workspace import Workspace

Mode = Literal["content", "files_with_matches", "count"]

TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Scope:
    """Where to look: below `base`, a path relative to `root`. `exclude` are such paths too.

    What `.gitignore` files exclude is left out, and names that begin with a dot unless `hidden`.
    """

    root: Path
    base: str
    hidden: bool
    exclude: tuple[str, ...] = ()


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


def scope_of(workspace: Workspace, path: str, *, hidden: bool) -> Scope | None:
    """The scope below `path`; None if nothing is there. Raises `ToolFailed` if it leads outside."""
    with workspace.place(path) as place:
        found = place.stat()
        if found is None:
            return None
        if not stat.S_ISDIR(found.st_mode):
            place.mark()  # refuses what would make us wait, such as a pipe
        inside = place.path.is_relative_to(workspace.folder.path)
        root = workspace.folder.path if inside else workspace.own.path
        closed = (path for path in workspace.folder.hidden if path != root and path.is_relative_to(root))
        exclude = tuple(path.relative_to(root).as_posix() for path in closed)
        return Scope(root, place.path.relative_to(root).as_posix(), hidden, exclude)
