"""A real browser in front of a real server, and everything it complains about."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.async_api import Page, async_playwright, expect

ARTIFACTS = Path(__file__).parents[2] / "artifacts"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]

PATIENCE_MS = 15_000
"""How long a page may take to show something; a busy machine needs more than the default."""
expect.set_options(timeout=PATIENCE_MS)


@dataclass
class Window:
    """One page, and what went wrong in it."""

    page: Page
    own: str
    complaints: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    """Requests to other hosts than our own."""

    def assert_content(self) -> None:
        """Nothing was refused by the policy, nothing failed, nobody else was asked, nothing popped up."""
        assert self.complaints == []
        assert self.foreign == []

    async def picture(self, name: str) -> None:
        ARTIFACTS.mkdir(exist_ok=True)
        await self.page.screenshot(path=ARTIFACTS / f"{name}.png")

    async def say(self, text: str) -> None:
        box = self.page.get_by_role("textbox", name="Message")
        await box.fill(text)
        await box.press("Enter")


@asynccontextmanager
async def window(
    url: str, *, width: int = 1280, height: int = 860, dark: bool = False
) -> AsyncGenerator[Window]:
    """A fresh browser at `url`. Skips where there is no Chromium, except in CI."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None and os.environ.get("CI") != "true":
        pytest.skip("needs chromium on PATH")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        page = await browser.new_page(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        page.set_default_timeout(PATIENCE_MS)
        seen = Window(page, url)
        page.on("console", lambda m: m.type in ("error", "warning") and seen.complaints.append(m.text))
        page.on("pageerror", lambda e: seen.complaints.append(str(e)))
        page.on("dialog", lambda d: seen.complaints.append(f"dialog: {d.message}"))
        page.on("request", lambda r: r.url.startswith((url, "data:")) or seen.foreign.append(r.url))
        try:
            await page.goto(url)
            yield seen
        finally:
            await browser.close()
