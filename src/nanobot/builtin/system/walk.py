"""Searching without ripgrep: slower, with Python's regular expressions, and the same answers."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Generator
from pathlib import PurePosixPath

from nanobot.builtin.server import ToolFailed
from nanobot.builtin.system.paths import Folder
from nanobot.builtin.system.patterns import IgnoreRule, ignore_rules, is_ignored, path_pattern
from nanobot.builtin.system.query import TIMEOUT_S, Line, Query, Scope

MAX_FILE_BYTES = 16 * 1024 * 1024
"""A longer file is passed over."""

TYPES = {
    "c": (".c", ".h"),
    "cpp": (".cpp", ".cc", ".cxx", ".hpp", ".hh", ".hxx", ".h"),
    "cs": (".cs",),
    "css": (".css", ".scss"),
    "go": (".go",),
    "html": (".html", ".htm"),
    "java": (".java",),
    "js": (".js", ".jsx", ".mjs", ".cjs"),
    "json": (".json",),
    "kotlin": (".kt", ".kts"),
    "lua": (".lua",),
    "markdown": (".md", ".markdown"),
    "md": (".md", ".markdown"),
    "php": (".php",),
    "py": (".py", ".pyi"),
    "ruby": (".rb",),
    "rust": (".rs",),
    "sh": (".sh", ".bash", ".zsh"),
    "sql": (".sql",),
    "swift": (".swift",),
    "toml": (".toml",),
    "ts": (".ts", ".tsx", ".cts", ".mts"),
    "txt": (".txt",),
    "xml": (".xml",),
    "yaml": (".yaml", ".yml"),
}


def find_files(scope: Scope) -> list[str]:
    return [path for path, _, ignored in _files(scope) if not ignored]


def find_lines(scope: Scope, query: Query) -> list[Line]:
    flags = re.MULTILINE | (re.IGNORECASE if query.ignore_case else 0) | (re.DOTALL if query.multiline else 0)
    try:
        pattern = re.compile(query.pattern, flags)
    except re.error as e:
        raise ToolFailed(f"regex parse error: {e}") from None
    if query.type and query.type not in TYPES:
        raise ToolFailed(f"unrecognized file type: {query.type}")
    chosen = path_pattern(query.glob.removeprefix("!")) if query.glob else None
    found: list[Line] = []
    for path, directory, ignored in _files(scope):
        if chosen is not None:
            matches = chosen.fullmatch(path) is not None
            if query.glob.startswith("!"):
                matches = not matches and not ignored
            if not matches:
                continue
        elif ignored:
            continue
        if query.type and PurePosixPath(path).suffix not in TYPES[query.type]:
            continue
        text = _read(path, directory)
        if text is not None:
            found += _lines_of(path, text, pattern, query)
    return found


def _lines_of(path: str, text: str, pattern: re.Pattern[str], query: Query) -> list[Line]:
    lines = text.removesuffix("\n").split("\n")
    matched = set(_matching(text, lines, pattern, query.multiline))
    if not matched:
        return []
    match query.mode:
        case "files_with_matches":
            return [Line(path)]
        case "count":
            return [Line(path, len(matched))]
        case "content":
            near = {n for m in matched for n in range(m - query.before, m + query.after + 1)}
            wanted = sorted(n for n in near if 1 <= n <= len(lines))
            return [Line(path, n, n in matched, lines[n - 1].rstrip("\r")) for n in wanted]


def _matching(text: str, lines: list[str], pattern: re.Pattern[str], multiline: bool) -> Generator[int]:
    """The numbers, from 1, of the lines that a match touches."""
    if not multiline:
        yield from (number for number, line in enumerate(lines, 1) if pattern.search(line.rstrip("\r")))
        return
    for match in pattern.finditer(text):
        first = text.count("\n", 0, match.start()) + 1
        touched = match[0].removesuffix("\n")
        yield from range(first, first + touched.count("\n") + 1)


def _read(path: str, directory: int) -> str | None:
    """The text of a file in an open directory; None for a binary, long or unreadable one."""
    try:
        file = os.open(os.path.basename(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return None
    with os.fdopen(file, "rb") as opened:
        if os.fstat(file).st_size > MAX_FILE_BYTES:
            return None
        content = opened.read(MAX_FILE_BYTES)
    return None if b"\0" in content else content.decode(errors="replace")


def _files(scope: Scope) -> Generator[tuple[str, int, bool]]:
    """Path, open directory and whether it is ignored, of each regular file.

    Links are not followed, ignored directories not entered.
    """
    deadline = time.monotonic() + TIMEOUT_S
    with Folder(scope.root).place(scope.base) as start:
        found = start.stat()
        if found is None:
            return
        if not stat.S_ISDIR(found.st_mode):
            yield scope.base, start.directory, False
            return
        base = "" if scope.base == "." else scope.base
        rules = {base: _rules_above(scope)}
        for inner, directories, files, directory in os.fwalk(start.name, dir_fd=start.directory):
            if time.monotonic() > deadline:
                raise ToolFailed(
                    f"The search took longer than {TIMEOUT_S} s; narrow it with `path` or `glob`."
                )
            here = str(
                PurePosixPath(base, *PurePosixPath(inner).parts[len(PurePosixPath(start.name).parts) :])
            )
            prefix = "" if here == "." else f"{here}/"
            known = rules[here if prefix else ""] + _rules_in(directory, prefix)
            directories[:] = [
                name
                for name in directories
                if _visible(name, scope)
                and prefix + name not in scope.exclude
                and not is_ignored(known, prefix + name, is_directory=True)
            ]
            rules |= {prefix + name: known for name in directories}
            for name in files:
                if not _visible(name, scope) or prefix + name in scope.exclude:
                    continue
                if stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                    yield prefix + name, directory, is_ignored(known, prefix + name, is_directory=False)


def _visible(name: str, scope: Scope) -> bool:
    return not name.startswith(".") or (scope.hidden and name != ".git")


def _rules_above(scope: Scope) -> list[IgnoreRule]:
    """The rules of the directories between the root and the base."""
    rules: list[IgnoreRule] = []
    above = PurePosixPath(scope.base)
    for parent in () if scope.base == "." else reversed(above.parents):
        prefix = "" if str(parent) == "." else f"{parent}/"
        with Folder(scope.root).place(prefix + ".gitignore") as place:
            rules += _rules_in(place.directory, prefix)
    return rules


def _rules_in(directory: int, prefix: str) -> list[IgnoreRule]:
    text = _read(".gitignore", directory)
    return [] if text is None else ignore_rules(text, prefix)
