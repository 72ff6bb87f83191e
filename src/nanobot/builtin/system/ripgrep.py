"""Searching with ripgrep. Nothing that a model wrote is ever read as an option or by a shell."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nanobot.builtin.server import ToolFailed
from nanobot.builtin.system.programs import Programs
from nanobot.builtin.system.query import TIMEOUT_S, Line, Query, Scope
from nanobot.builtin.system.workspace import Workspace

MAX_OUTPUT_BYTES = 64 * 1024 * 1024

_ALWAYS = (
    "--no-config",
    "--color=never",
    "--no-require-git",
    "--no-ignore-global",
    "--no-ignore-dot",
    "--null",
)
_LINE = re.compile(rb"(\d+)([:-])(.*)", re.DOTALL)


async def find_files(program: str, programs: Programs, workspace: Workspace, scope: Scope) -> list[str]:
    argv = [program, "--files", *_ALWAYS, *_scope_options(scope), "--", _start(scope)]
    printed = await _output(argv, programs, workspace, scope)
    return [_path(name) for name in printed.split(b"\0") if name]


async def find_lines(
    program: str, programs: Programs, workspace: Workspace, scope: Scope, query: Query
) -> list[Line]:
    options = [
        *_ALWAYS,
        "--crlf",
        "--with-filename",
        "--ignore-case" if query.ignore_case else "--case-sensitive",
    ]
    match query.mode:
        case "files_with_matches":
            options.append("--files-with-matches")
        case "count":
            options.append("--count")
        case "content":
            options += ["--no-heading", "--line-number", "--no-context-separator"]
            options += [f"--before-context={query.before}", f"--after-context={query.after}"]
    if query.multiline:
        options += ["--multiline", "--multiline-dotall"]
    if query.type:
        options.append(f"--type={query.type}")
    if query.glob:
        options.append(f"--glob={query.glob}")
    argv = [program, *options, *_scope_options(scope), "-e", query.pattern, "--", _start(scope)]
    printed = await _output(argv, programs, workspace, scope)
    if query.mode == "files_with_matches":
        return [Line(_path(name)) for name in printed.split(b"\0") if name]
    return [line for raw in printed.split(b"\n") if (line := _line(raw, query)) is not None]


def _line(raw: bytes, query: Query) -> Line | None:
    """One printed line; None for a remark about a binary file."""
    name, nul, rest = raw.partition(b"\0")
    if not nul:
        return None
    if query.mode == "count":
        return Line(_path(name), int(rest))
    match = _LINE.fullmatch(rest)
    if match is None:
        return None
    text = match[3].decode(errors="replace").rstrip("\r")
    return Line(_path(name), int(match[1]), match[2] == b":", text)


def _scope_options(scope: Scope) -> list[str]:
    options = ["--hidden", "--glob=!.git"] if scope.hidden else []
    # They come last: of globs that contradict each other the last one decides.
    return options + ["--glob=!/" + re.sub(r"([\\*?\[\]{}!])", r"\\\1", path) for path in scope.exclude]


def _start(scope: Scope) -> str:
    return "./" if scope.base == "." else f"./{scope.base}"


def _path(name: bytes) -> str:
    return name.decode(errors="surrogateescape").removeprefix("./")


async def _output(argv: Sequence[str], programs: Programs, workspace: Workspace, scope: Scope) -> bytes:
    """What ripgrep prints. An error it reports counts only if it found nothing (a file may be unreadable)."""
    printed, complaint = bytearray(), bytearray()

    def out(chunk: bytes) -> None:
        printed.extend(chunk)
        if len(printed) > MAX_OUTPUT_BYTES:
            raise ToolFailed("Far too much was found; narrow the search with `path`, `glob` or the pattern.")

    def err(chunk: bytes) -> None:
        complaint.extend(chunk[: 4000 - len(complaint)])

    try:
        status = await programs.run(argv, workspace, cwd=scope.root, timeout_s=TIMEOUT_S, out=out, err=err)
    except TimeoutError:
        raise ToolFailed(
            f"The search took longer than {TIMEOUT_S} s; narrow it with `path` or `glob`."
        ) from None
    if status not in (0, 1) and not printed:
        raise ToolFailed(
            complaint.decode(errors="replace").removeprefix("rg: ").strip() or f"rg: status {status}"
        )
    return bytes(printed)
