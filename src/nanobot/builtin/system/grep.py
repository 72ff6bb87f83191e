"""`grep`: lines by regular expression."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from nanobot.builtin.server import BuiltinTool, ToolFailed
from nanobot.builtin.system.patterns import names_hidden
from nanobot.builtin.system.programs import Programs
from nanobot.builtin.system.query import Line, Mode, Query, scope_of
from nanobot.builtin.system.search import find_lines
from nanobot.builtin.system.workspace import Workspaces
from nanobot.wire.call import Call

DEFAULT_RESULTS = 2000
MAX_LINE_CHARACTERS = 2000

_NONE = "No matches found"
_COUNTS = ("-A", "-B", "-C", "head_limit", "offset")


def grep_tool(workspaces: Workspaces, programs: Programs) -> BuiltinTool:
    return BuiltinTool(
        name="grep",
        description=(
            "Search file contents with a regular expression (ripgrep's syntax: escape literal braces and "
            "dots). `output_mode` `files_with_matches` (default) lists files, `content` shows lines, "
            "`count` counts them. Files that `.gitignore` excludes, hidden and binary ones are left out."
        ),
        schema={
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "The regular expression."},
                "path": {"type": "string", "description": "File or folder; default: the working folder."},
                "glob": {"type": "string", "description": "Only files of this pattern: `*.py`, `src/**`."},
                "type": {"type": "string", "description": "Only files of this type: `py`, `js`, `rust`."},
                "output_mode": {
                    "type": "string",
                    "enum": ["content", "files_with_matches", "count"],
                    "default": "files_with_matches",
                },
                "-A": {"type": "integer", "description": "Lines to show after each match."},
                "-B": {"type": "integer", "description": "Lines to show before each match."},
                "-C": {"type": "integer", "description": "Lines to show around each match."},
                "-n": {"type": "boolean", "description": "Show line numbers.", "default": True},
                "-i": {"type": "boolean", "description": "Ignore case."},
                "multiline": {
                    "type": "boolean",
                    "description": "Matches may span lines, `.` matches line ends.",
                },
                "head_limit": {"type": "integer", "description": "Results to show."},
                "offset": {"type": "integer", "description": "Results to skip first."},
            },
            "required": ["pattern"],
        },
        run=partial(_grep, workspaces, programs),
        annotations={"readOnlyHint": True},
    )


async def _grep(workspaces: Workspaces, programs: Programs, arguments: dict[str, Any], call: Call) -> str:
    numbers = {name: int(arguments.get(name, 0)) for name in _COUNTS}
    for name, number in numbers.items():
        if number < 0:
            raise ToolFailed(f"{name} must be >= 0")
    workspace = workspaces.of(call)
    mode: Mode = arguments.get("output_mode", "files_with_matches")
    glob: str = arguments.get("glob", "")
    around = "-C" in arguments
    query = Query(
        pattern=arguments["pattern"],
        mode=mode,
        glob=glob,
        type=arguments.get("type", ""),
        ignore_case=arguments.get("-i", False),
        multiline=arguments.get("multiline", False),
        before=numbers["-C"] if around else numbers["-B"],
        after=numbers["-C"] if around else numbers["-A"],
    )
    path: str = arguments.get("path", ".")
    scope = scope_of(workspace, path, hidden=names_hidden(glob))
    if scope is None:
        raise ToolFailed(f"'{path}' does not exist.")
    found = await find_lines(programs, workspace, scope, query)
    if scope.root != workspace.folder.path:
        found = [Line(str(scope.root / line.path), line.number, line.matched, line.text) for line in found]

    rest = found[numbers["offset"] :]
    limit = numbers["head_limit"] or DEFAULT_RESULTS
    shown = list(_rendered(rest[:limit], query, numbered=arguments.get("-n", True)))
    if len(rest) > limit and not numbers["head_limit"]:
        shown.append(
            f"[{limit:,} of {len(rest):,} results shown; use head_limit and offset, or narrow the search]"
        )
    return "\n".join(shown).encode(errors="surrogateescape").decode(errors="replace") or _NONE


def _rendered(lines: Sequence[Line], query: Query, *, numbered: bool) -> Generator[str]:
    """The text of each line; `--` where lines with context do not follow one another."""
    match query.mode:
        case "files_with_matches":
            yield from (line.path for line in lines)
        case "count":
            yield from (f"{line.path}:{line.number}" for line in lines)
        case "content":
            grouped = query.before or query.after
            yield from (_with_place(line, numbered) for line in lines[:1])
            for previous, line in pairwise(lines):
                if grouped and (line.path, line.number) != (previous.path, previous.number + 1):
                    yield "--"
                yield _with_place(line, numbered)


def _with_place(line: Line, numbered: bool) -> str:
    mark = ":" if line.matched else "-"
    text = line.text
    if len(text) > MAX_LINE_CHARACTERS:
        text = text[:MAX_LINE_CHARACTERS] + f"... (line truncated to {MAX_LINE_CHARACTERS} chars)"
    number = f"{line.number}{mark}" if numbered else ""
    return f"{line.path}{mark}{number}{text}"
