"""`glob`: files by the pattern of their path, the last changed first."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from anyio import to_thread

from nanobot.builtin.server import BuiltinTool
from nanobot.builtin.system.patterns import names_hidden, path_pattern
from nanobot.builtin.system.programs import Programs
from nanobot.builtin.system.query import Scope, scope_of
from nanobot.builtin.system.search import find_files
from nanobot.builtin.system.workspace import Workspace, Workspaces
from nanobot.wire.call import Call

MAX_FILES = 20_000

_NONE = "No files found matching pattern"


def glob_tool(workspaces: Workspaces, programs: Programs) -> BuiltinTool:
    return BuiltinTool(
        name="glob",
        description=(
            "Find files by a pattern such as `*.py` (a name, at any depth), `src/**/*.ts` or "
            "`docs/*.{md,txt}`; the last changed come first. Files that `.gitignore` excludes are left "
            "out, and hidden ones unless the pattern names a leading dot."
        ),
        schema={
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "The pattern, relative to `path`."},
                "path": {"type": "string", "description": "Folder to look in; default: the working folder."},
            },
            "required": ["pattern"],
        },
        run=partial(_glob, workspaces, programs),
        annotations={"readOnlyHint": True},
    )


async def _glob(workspaces: Workspaces, programs: Programs, arguments: dict[str, Any], call: Call) -> str:
    workspace = workspaces.of(call)
    wanted: str = arguments["pattern"]
    pattern = path_pattern(wanted)
    scope = scope_of(workspace, arguments.get("path", "."), hidden=names_hidden(wanted))
    if scope is None:
        return _NONE
    files = await find_files(programs, workspace, scope)

    def newest_first() -> list[str]:
        prefix = 0 if scope.base == "." else len(scope.base) + 1
        matching = [path for path in files if pattern.fullmatch(path[prefix:])]
        dated = sorted((-_changed(scope, path), path) for path in matching)
        return [_shown(workspace, scope, path) for _, path in dated]

    found = await to_thread.run_sync(newest_first)
    if len(found) > MAX_FILES:
        found[MAX_FILES:] = [f"[{MAX_FILES:,} of {len(found):,} files shown; narrow the pattern]"]
    return "\n".join(found) or _NONE


def _changed(scope: Scope, path: str) -> int:
    try:
        return os.stat(scope.root / path, follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0  # gone meanwhile


def _shown(workspace: Workspace, scope: Scope, path: str) -> str:
    shown = path if scope.root == workspace.folder.path else str(scope.root / path)
    return shown.encode(errors="surrogateescape").decode(errors="replace")
