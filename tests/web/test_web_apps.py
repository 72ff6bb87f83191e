"""MCP Apps on the chat page, in Chromium: the official example server, and one that tries to get out."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.async_api import FrameLocator, expect
from tests.peers.nodes import node
from tests.server.world import Served, served
from tests.web.browser import Window, window

from nanobot.config.approvals import Approvals, Rule
from nanobot.config.model import Agent, McpServer
from nanobot.config.places import Reference
from nanobot.testing.model_server import Reply, ScriptedCall

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

PEERS = Path(__file__).parents[1] / "peers"


@asynccontextmanager
async def chatting(
    home: Path, *argv: str, tool: str, approvals: Approvals | None = None
) -> AsyncGenerator[tuple[Served, Window, FrameLocator]]:
    """A chat in which `tool` of the server was called, and the frame of its app."""
    server = McpServer(name="clock", command=argv[0], args=argv[1:], sandbox=None)
    agent = Agent(
        id="keeper", model="script/m", mcp_servers=(Reference(server="clock"),), tool_approvals=approvals
    )
    adjusted = served(
        home, first=(agent,), adjust=lambda config: replace(config, mcp_servers={"clock": server})
    )
    async with adjusted as nanobot, window(nanobot.url) as chat:
        nanobot.model.queue(Reply(calls=(ScriptedCall(tool),)), Reply(text="Here it is."))
        await chat.say("What time is it?")
        await expect(chat.page.get_by_role("log")).to_contain_text("Here it is.")
        yield nanobot, chat, chat.page.get_by_role("log").frame_locator("iframe")


async def test_the_example_app_shows_the_time_and_asks_its_server_for_it(tmp_path: Path) -> None:
    argv = node("server-basic-vanillajs/dist/index.js", "--stdio")
    async with chatting(tmp_path, *argv, tool="get-time") as (nanobot, chat, app):
        page = chat.page
        time = app.locator("#server-time")
        await expect(time).to_contain_text("Z")  # the result of the model's own call
        shown = await time.inner_text()
        await app.get_by_role("button", name="Get Server Time").click()
        await expect(time).not_to_have_text(shown)
        await expect(time).to_contain_text("Z")
        frame = page.get_by_role("log").locator("iframe")
        await expect(frame).to_have_attribute("sandbox", "allow-scripts allow-forms")
        assert (await frame.evaluate("frame => frame.style.height")).endswith("px")
        await chat.picture("app")

        dialog = page.get_by_role("dialog")
        await app.get_by_role("button", name="Open Link").click()
        await expect(dialog).to_contain_text("modelcontextprotocol.io")
        await dialog.get_by_role("button", name="Cancel").click()
        assert len(page.context.pages) == 1

        await app.get_by_role("button", name="Send Message").click()
        await expect(dialog).to_contain_text("This is message text.")
        await dialog.get_by_role("button", name="Cancel").click()
        await expect(page.get_by_role("log").locator("article.user")).to_have_count(1)
        await app.get_by_role("button", name="Send Message").click()
        nanobot.model.queue(Reply(text="The app spoke."))
        await dialog.get_by_role("button", name="Send it").click()
        await expect(page.get_by_role("log").locator("article.user").last).to_contain_text(
            "This is message text."
        )
        await expect(page.get_by_role("log")).to_contain_text("The app spoke.")

        await page.reload()
        await expect(time).to_contain_text("Z")
        chat.assert_content()


async def test_an_app_that_wants_out_stays_inside(tmp_path: Path) -> None:
    argv = (sys.executable, str(PEERS / "app_server.py"))
    async with chatting(tmp_path, *argv, tool="hostile") as (nanobot, chat, app):
        found = app.locator("#found")
        await expect(found).to_contain_text("long")
        assert json.loads(await found.inner_text()) == {
            "parent": "refused",
            "cookie": "refused",
            "storage": "refused",
            "top": "refused",
            "popup": "null",
            "fetch": "refused",
            "api": "refused",
            "image": "refused",
            "origin": "null",
            "before": "-32601",
            "tool": "-32602",
            "link": "true",
            "long": "-32600",
        }
        await expect(chat.page.get_by_role("dialog")).to_be_hidden()
        await app.get_by_role("button", name="Many").click()
        await expect(app.locator("#said")).to_have_text("too many")
        async with chat.page.expect_console_message(lambda message: "frame-src 'self'" in message.text):
            await app.get_by_role("button", name="Away").click()
        assert chat.page.url.startswith(nanobot.url)
        assert [page.url for page in chat.page.context.pages] == [chat.page.url]


async def test_what_needs_approval_is_asked_where_the_app_is(tmp_path: Path) -> None:
    rules = Approvals(rules=(Rule(target=Reference("clock", "hostile"), allow=True),))
    argv = (sys.executable, str(PEERS / "app_server.py"))
    async with chatting(tmp_path, *argv, tool="hostile", approvals=rules) as (_, chat, app):
        await expect(app.locator("#found")).to_contain_text("long")
        dialog = chat.page.get_by_role("dialog")
        await app.get_by_role("button", name="Wind").click()
        await expect(dialog).to_contain_text('"turns": 4')
        await dialog.get_by_role("button", name="Cancel").click()
        await expect(app.locator("#said")).to_contain_text("approval was refused")
        await app.get_by_role("button", name="Wind").click()
        await chat.picture("app-approval")
        await dialog.get_by_role("button", name="Yes, once").click()
        await expect(app.locator("#said")).to_have_text("wound 4 times")
