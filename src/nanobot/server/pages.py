"""The files of the web chat, read once from the package and served from memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from nanobot.server.exchange import Exchange
from nanobot.server.problems import Header
from nanobot.server.security import PAGE_HEADERS

CONTENT_TYPES: Final = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
    "webmanifest": b"application/manifest+json",
}
"""By file ending; files of other kinds are not served."""


@dataclass(frozen=True, slots=True)
class Page:
    """One file as it is sent."""

    body: bytes
    etag: bytes
    headers: tuple[Header, ...]


class Pages:
    """`/` and `/c/{thread}` are the chat, `/assets/…` what it is made of."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages

    def find(self, path: str) -> Page | None:
        if path == "/" or (path.startswith("/c/") and len(path) > 3 and path.count("/") == 2):
            path = "/index.html"
        return self._pages.get(path)

    async def show(self, http: Exchange, page: Page) -> None:
        if http.header(b"if-none-match") == page.etag:
            await http.answer(304, page.headers)
        else:
            await http.answer(200, page.headers, page.body)


def load_pages() -> Pages:
    """All files of the package `nanobot.web` that a browser may see."""
    return Pages(dict(_pages_in(files("nanobot.web"), "/")))


def _pages_in(folder: Traversable, path: str) -> Iterator[tuple[str, Page]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _pages_in(entry, f"{path}{entry.name}/")
        elif content_type := CONTENT_TYPES.get(entry.name.rpartition(".")[2]):
            yield path + entry.name, _page(entry.read_bytes(), content_type)


def _page(body: bytes, content_type: bytes) -> Page:
    etag = b'"' + hashlib.sha256(body).hexdigest()[:32].encode() + b'"'
    # `no-cache` is "ask before each use": a new version is seen at once, an unchanged file costs a 304.
    headers = (
        (b"content-type", content_type),
        (b"cache-control", b"no-cache"),
        (b"etag", etag),
        *PAGE_HEADERS,
    )
    return Page(body, etag, headers)
