"""The pages of a PDF file as images, drawn by poppler's programs."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nanobot.builtin.server import ToolFailed
from nanobot.builtin.system.programs import Programs
from nanobot.builtin.system.workspace import Workspace

MAX_PAGES = 10

WHOLE = {"ai.nanobot.meta/skip-truncation": True}
"""Marks content that is already within bounds, so that nobody shortens it again."""

_PROGRAM_S = 60
_MAX_OUTPUT_BYTES = 20_000_000
_LONGEST_SIDE = "1024"  # pixels


async def read_pdf(programs: Programs, workspace: Workspace, path: str, pages: str | None) -> dict[str, Any]:
    """A tool result: a line of text, then one JPEG a page."""
    with ExitStack() as opened:
        file = opened.enter_context(opened.enter_context(workspace.place(path)).open())

        async def run(name: str, *options: str) -> bytes:
            program = programs.find(name)
            if program is None:
                raise ToolFailed(
                    f"Reading PDF files needs the program `{name}` (Debian: `apt install poppler-utils`)."
                )
            os.lseek(file.fileno(), 0, os.SEEK_SET)  # the programs move the one position we share
            return await _output(programs, workspace, [program, *options], file.fileno())

        described = await run("pdfinfo", "-")
        total = re.search(rb"^Pages:\s+(\d+)", described, re.MULTILINE)
        if total is None:
            raise ToolFailed(f"'{path}' cannot be read as a PDF file.")
        first, last = page_range(pages, int(total[1]))
        content: list[dict[str, Any]] = [
            {"type": "text", "text": f"PDF: {Path(path).name} (pages {first}-{last} of {int(total[1])})"}
        ]
        for page in range(first, last + 1):
            drawing = ("-jpeg", "-jpegopt", "quality=85", "-scale-to", _LONGEST_SIDE, "-singlefile")
            image = await run("pdftoppm", *drawing, "-f", str(page), "-l", str(page), "-")
            data = base64.b64encode(image).decode()
            content.append({"type": "image", "data": data, "mimeType": "image/jpeg", "_meta": WHOLE})
        return {"content": content}


def page_range(pages: str | None, total: int) -> tuple[int, int]:
    """`N` or `A-B` as first and last page, the last one no further than `total`; all pages for None."""
    if pages is None:
        if total > MAX_PAGES:
            raise ToolFailed(f"The file has {total} pages; ask for {MAX_PAGES} at most with `pages`.")
        return 1, total
    match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", pages)
    if match is None:
        raise ToolFailed("pages must be a page (`3`) or a range (`2-5`)")
    first = int(match[1])
    last = int(match[2] or first)
    if not 1 <= first <= total:
        raise ToolFailed(f"Page {first} does not exist; the file has {total} pages.")
    if last < first:
        raise ToolFailed("pages must rise: the first page comes before the last one")
    last = min(last, total)
    if last - first >= MAX_PAGES:
        raise ToolFailed(f"At most {MAX_PAGES} pages can be read at once.")
    return first, last


async def _output(programs: Programs, workspace: Workspace, argv: Sequence[str], stdin: int) -> bytes:
    printed = bytearray()

    def out(chunk: bytes) -> None:
        printed.extend(chunk)
        if len(printed) > _MAX_OUTPUT_BYTES:
            raise ToolFailed("A page of the file makes too large an image.")

    try:
        status = await programs.run(
            argv,
            workspace,
            cwd=workspace.own.path,
            timeout_s=_PROGRAM_S,
            out=out,
            err=lambda _: None,
            stdin=stdin,
        )
    except TimeoutError:
        raise ToolFailed(f"Reading the PDF file took longer than {_PROGRAM_S} s.") from None
    if status != 0:
        raise ToolFailed(
            "The file cannot be read as a PDF file; it may be damaged or protected by a password."
        )
    return bytes(printed)
