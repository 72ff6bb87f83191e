"""`read`: a file for the model, as numbered lines or as an image."""

from __future__ import annotations

import base64
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from anyio import to_thread

from nanobot.builtin.server import BuiltinTool, ToolFailed
from nanobot.builtin.system.paths import Mark
from nanobot.builtin.system.pdf import WHOLE, read_pdf
from nanobot.builtin.system.programs import Programs
from nanobot.builtin.system.workspace import Seen, Workspaces
from nanobot.wire.call import Call

DEFAULT_LINES = 2000
MAX_LINE_CHARACTERS = 2000
MAX_TEXT_BYTES = 50 * 1024
MAX_IMAGE_BYTES = 10_000_000

_BINARY_PROBE_BYTES = 8 * 1024
_LINE_BYTES = MAX_LINE_CHARACTERS * 4 + 2
"""More than a line's visible part can take in UTF-8."""

_IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp"}


def read_tool(workspaces: Workspaces, programs: Programs, seen: Seen) -> BuiltinTool:
    return BuiltinTool(
        name="read",
        description=(
            "Read a file. Text comes as numbered lines, 2000 at most unless `limit` says otherwise; use "
            "`offset` (lines to skip) and `limit` for long files. PNG, JPEG and WebP files come as "
            "images, PDF files as page images (`pages`, e.g. `3` or `2-5`, 10 at most). Paths are "
            "relative to the working folder."
        ),
        schema={
            "type": "object",
            "properties": {
                "file_path": {"type": "string", "description": "The file to read."},
                "offset": {"type": "integer", "description": "Lines to skip (text only)."},
                "limit": {"type": "integer", "description": "Lines to read (text only); default 2000."},
                "pages": {"type": "string", "description": "Pages to read (PDF only): `3` or `2-5`."},
            },
            "required": ["file_path"],
        },
        run=partial(_read, workspaces, programs, seen),
        annotations={"readOnlyHint": True},
    )


async def _read(
    workspaces: Workspaces, programs: Programs, seen: Seen, arguments: dict[str, Any], call: Call
) -> dict[str, Any]:
    workspace = workspaces.of(call)
    path: str = arguments["file_path"]
    kind = Path(path).suffix.lower()
    if kind == ".pdf":
        _refuse(arguments, "offset", "limit", kind="PDF")
        return await read_pdf(programs, workspace, path, arguments.get("pages"))

    def look() -> tuple[dict[str, Any], Path, Mark]:
        with workspace.place(path) as place, place.open() as file:
            mark = Mark.of_open(file)
            if kind in _IMAGES:
                _refuse(arguments, "offset", "limit", "pages", kind="image")
                return _image(file, path, mark.size, _IMAGES[kind]), place.path, mark
            if "pages" in arguments:
                raise ToolFailed("pages is only supported for PDF files")
            offset, limit = arguments.get("offset"), arguments.get("limit")
            return _text(file, path, mark.size, offset, limit), place.path, mark

    content, where, mark = await to_thread.run_sync(look)
    seen.record(workspace.conversation, where, mark)
    return {"content": [content]}


def _image(file: BinaryIO, path: str, size: int, mime_type: str) -> dict[str, Any]:
    if size > MAX_IMAGE_BYTES:
        raise ToolFailed(f"'{path}' has {size:,} bytes; images up to {MAX_IMAGE_BYTES:,} can be read.")
    data = base64.b64encode(file.read(MAX_IMAGE_BYTES)).decode()
    return {"type": "image", "data": data, "mimeType": mime_type, "_meta": WHOLE}


def _text(file: BinaryIO, path: str, size: int, offset: int | None, limit: int | None) -> dict[str, Any]:
    """The asked lines; or a notice without content when there is more than one answer may hold."""
    if offset is not None and offset < 0:
        raise ToolFailed("offset must be >= 0")
    if limit is not None and limit <= 0:
        raise ToolFailed("limit must be > 0")
    if b"\0" in file.read(_BINARY_PROBE_BYTES):
        raise ToolFailed(f"'{path}' is a binary file.")
    file.seek(0)
    if size == 0:
        return {"type": "text", "text": f"The file '{path}' exists and is empty."}

    skipped, wanted = int(offset or 0), int(limit or DEFAULT_LINES)
    rendered: list[str] = []
    produced = 0
    number = 0
    for number, line in enumerate(_lines(file, skipped), 1):
        if number <= skipped:
            continue
        if number > skipped + wanted:
            if offset is None and limit is None:
                return _notice(path, size, len(rendered), produced)
            break
        rendered.append(f"{number:>6}\t{line}\n")
        produced += len(rendered[-1].encode())
        if produced > MAX_TEXT_BYTES:
            return _notice(path, size, len(rendered), produced)
    if not rendered:
        return {"type": "text", "text": f"'{path}' has {number} lines; none is left after {skipped}."}
    return {"type": "text", "text": "".join(rendered)}


def _notice(path: str, size: int, lines: int, produced: int) -> dict[str, Any]:
    text = (
        f"'{path}' is too long to show at once: it has {size:,} bytes, and its first {lines:,} lines "
        f"already make {produced:,} bytes of text. Read it in parts with `offset` and `limit`, or search "
        "it with `grep`."
    )
    return {"type": "text", "text": text, "_meta": WHOLE}


def _lines(file: BinaryIO, skip: int) -> Generator[str]:
    """The lines without their ends, each cut to its visible length; the first `skip` come as ""."""
    number = 0
    while start := file.readline(_LINE_BYTES):
        number += 1
        piece = start
        while not piece.endswith(b"\n") and (piece := file.readline(_LINE_BYTES)):
            pass  # the rest of a very long line
        if number <= skip:
            yield ""
            continue
        line = start.decode(errors="replace").rstrip("\r\n")
        if len(line) > MAX_LINE_CHARACTERS:
            line = line[:MAX_LINE_CHARACTERS] + f"... (line truncated to {MAX_LINE_CHARACTERS} chars)"
        yield line


def _refuse(arguments: dict[str, Any], *names: str, kind: str) -> None:
    for name in names:
        if name in arguments:
            raise ToolFailed(f"{name} is not supported for {kind} files")
