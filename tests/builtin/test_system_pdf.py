"""`read` on PDF files."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import pytest
from tests.peers.needed import needed

from nanobot.builtin.server import ToolFailed
from nanobot.builtin.system.pdf import page_range
from nanobot.builtin.system.programs import Programs

from .system_world import World

pytestmark = pytest.mark.anyio


def pdf(pages: int) -> bytes:
    """A PDF file of blank pages."""
    kids = " ".join(f"{n + 3} 0 R" for n in range(pages))
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Count {pages}/Kids[{kids}]>>",
        *["<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 100]>>"] * pages,
    ]
    text, offsets = "%PDF-1.4\n", list[int]()
    for number, body in enumerate(objects, 1):
        offsets.append(len(text))
        text += f"{number} 0 obj{body}endobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    trailer = f"trailer<</Size {size}/Root 1 0 R>>\nstartxref\n{len(text)}\n%%EOF"
    return f"{text}xref\n0 {size}\n0000000000 65535 f \n{table}{trailer}".encode()


@needed(shutil.which("pdftoppm") is not None, "poppler-utils")
async def test_the_pages_of_a_pdf_file_are_read_as_images(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.put("a.pdf", pdf(12))
    world.put("broken.pdf", "no pdf")
    result = await world.result("read", {"file_path": "a.pdf", "pages": "2-3"})
    header, *images = result["content"]
    assert header["text"] == "PDF: a.pdf (pages 2-3 of 12)"
    assert [image["mimeType"] for image in images] == ["image/jpeg"] * 2
    assert all(base64.b64decode(image["data"]).startswith(b"\xff\xd8\xff") for image in images)
    assert "12 pages" in await world.fail("read", file_path="a.pdf")
    assert "cannot be read as a PDF file" in await world.fail("read", file_path="broken.pdf")


async def test_without_the_programs_their_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Programs, "find", lambda *_: None)  # a machine without poppler
    world = World(tmp_path, sandbox=None)
    world.put("a.pdf", pdf(1))
    assert "needs the program `pdfinfo`" in await world.fail("read", file_path="a.pdf")


@pytest.mark.parametrize(
    ("pages", "total", "expected"),
    [
        (None, 10, (1, 10)),
        ("3", 5, (3, 3)),
        (" 2 - 4 ", 5, (2, 4)),
        ("4-9", 5, (4, 5)),
        ("1-99", 10, (1, 10)),
        (None, 11, "11 pages"),
        ("0", 5, "Page 0 does not exist"),
        ("6", 5, "Page 6 does not exist"),
        ("4-2", 5, "pages must rise"),
        ("1-11", 20, "At most 10 pages"),
        ("one", 5, "pages must be a page"),
    ],
)
def test_a_page_range_is_read(pages: str | None, total: int, expected: tuple[int, int] | str) -> None:
    if isinstance(expected, tuple):
        assert page_range(pages, total) == expected
    else:
        with pytest.raises(ToolFailed, match=expected):
            page_range(pages, total)
