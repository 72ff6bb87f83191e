"""`edit`: one exact piece of a file replaced by another."""

from __future__ import annotations

from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import Any

from anyio import to_thread

from nanobot.builtin.server import BuiltinTool, ToolFailed
from nanobot.builtin.system.paths import Mark
from nanobot.builtin.system.workspace import Seen, Workspaces
from nanobot.builtin.system.write import require_seen
from nanobot.wire.call import Call

MAX_BYTES = 50 * 1024 * 1024

_COMPARED_LINES = 20_000
_LIKENESS = 0.6
_SHOWN_PLACES = 10


def edit_tool(workspaces: Workspaces, seen: Seen) -> BuiltinTool:
    return BuiltinTool(
        name="edit",
        description=(
            "Replace `old_string` in a file by `new_string`. The file must have been read first. "
            "`old_string` must match exactly, without the line numbers that `read` prints, and occur "
            "once; give more lines around it to make it unique, or set `replace_all`."
        ),
        schema={
            "type": "object",
            "properties": {
                "file_path": {"type": "string", "description": "The file to change."},
                "old_string": {"type": "string", "description": "The text to replace."},
                "new_string": {"type": "string", "description": "The text to put in its place."},
                "replace_all": {
                    "type": "boolean",
                    "description": "Replace every occurrence.",
                    "default": False,
                },
            },
            "required": ["file_path", "old_string", "new_string"],
        },
        run=partial(_edit, workspaces, seen),
        annotations={"destructiveHint": True},
    )


async def _edit(workspaces: Workspaces, seen: Seen, arguments: dict[str, Any], call: Call) -> str:
    workspace = workspaces.of(call)
    path: str = arguments["file_path"]
    old: str = arguments["old_string"]
    new: str = arguments["new_string"]
    if not old:
        raise ToolFailed("old_string is required")
    if old == new:
        raise ToolFailed("old_string and new_string must be different")

    def change() -> tuple[Path, Mark]:
        with workspace.place(path) as place:
            with place.open() as file:
                known = Mark.of_open(file)
                require_seen(seen, workspace.conversation, place.path, known)
                if known.size > MAX_BYTES:
                    raise ToolFailed(f"'{path}' has {known.size:,} bytes; edit takes {MAX_BYTES:,} at most.")
                content = file.read()
            try:
                text = content.decode()
            except UnicodeDecodeError:
                raise ToolFailed(f"'{path}' is not UTF-8 text and cannot be edited.") from None
            edited = replaced(text, old, new, everywhere=arguments.get("replace_all", False))
            return place.path, place.replace(edited.encode(), known=known)

    async with seen.changing(workspace.conversation):
        where, mark = await to_thread.run_sync(change)
        seen.record(workspace.conversation, where, mark)
    return f"Successfully edited file: {path}"


def replaced(text: str, old: str, new: str, *, everywhere: bool) -> str:
    """`text` with `old` replaced by `new`, lines ending as they do in `text`. `ToolFailed` says why not."""
    if "\r\n" in text and (old not in text or "\n" not in text.replace("\r\n", "")):
        old, new = _with_crlf(old), _with_crlf(new)
    places = text.count(old)
    if places == 0:
        raise ToolFailed("old_string not found in content" + _nearest(text, old))
    if places > 1 and not everywhere:
        raise ToolFailed(
            f"old_string occurs {places} times (lines {_line_numbers(text, old)}); give more context to "
            "make it unique, or set replace_all"
        )
    return text.replace(old, new)


def _with_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _line_numbers(text: str, old: str) -> str:
    numbers: list[str] = []
    start = text.find(old)
    while start >= 0 and len(numbers) < _SHOWN_PLACES:
        numbers.append(str(text.count("\n", 0, start) + 1))
        start = text.find(old, start + len(old))
    return ", ".join(numbers) + (", …" if start >= 0 else "")


def _nearest(text: str, old: str) -> str:
    """Where the first line of `old` nearly stands; "" if nowhere."""
    sought = next((line.strip() for line in old.splitlines() if line.strip()), "")
    if not sought:
        return ""
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(sought)
    best, found = _LIKENESS, ""
    for number, line in enumerate(text.split("\n")[:_COMPARED_LINES], 1):
        matcher.set_seq1(line.strip()[:500])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and matcher.ratio() > best:
            best = matcher.ratio()
            found = f"; the nearest is line {number}: {line.strip()[:200]!r}"
    return found
