"""The official SDK's client in front of `nanobot run examples/quickstart`, in both eras."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp import Client
from tests.peers.programs import QUICKSTART, serving

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
async def test_the_sdk_client_uses_tools_and_chats_with_progress(mode: str, tmp_path: Path) -> None:
    with serving(str(QUICKSTART), "--default-model", "demo", home=tmp_path) as server:
        async with Client(server.url + "/mcp", mode=mode) as client:
            assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == ["chat-with-guide", "chat-with-nanobot", "list_notes", "read_note", "write_note"]

            note = await client.call_tool("read_note", {"name": "welcome"})
            assert not note.is_error
            assert note.content[0].text.startswith("Welcome to nanobot")

            prompt = await client.get_prompt("summarise", {"name": "welcome"})
            assert "the note welcome" in prompt.messages[0].content.text

            resource = await client.read_resource("note:///welcome")
            assert resource.contents[0].text == note.content[0].text

            steps: list[float] = []

            async def seen(progress: float, total: float | None, message: str | None) -> None:
                steps.append(progress)

            said = 'call read_note {"name": "welcome"}'
            answer = await client.call_tool("chat-with-guide", {"prompt": said}, progress_callback=seen)
            assert not answer.is_error
            assert note.content[0].text in answer.content[0].text
            assert len(steps) >= 3
            assert steps == sorted(set(steps))


async def test_a_chat_over_mcp_remembers_what_was_said_before(tmp_path: Path) -> None:
    with serving(str(QUICKSTART), "--default-model", "demo", home=tmp_path) as server:
        async with Client(server.url + "/mcp", mode="legacy") as client:
            await client.call_tool("chat-with-guide", {"prompt": "ask What is your name?"})
            answer = await client.call_tool("chat-with-guide", {"prompt": "Ada"})
            assert "Ada" in answer.content[0].text


async def test_stdio_serves_the_same(tmp_path: Path) -> None:
    import sys

    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client
    from tests.peers.programs import clean_env

    args = ["-m", "nanobot", "run", str(QUICKSTART), "--default-model", "demo", "-a", "stdio"]
    peer = StdioServerParameters(command=sys.executable, args=args, env=clean_env(tmp_path))
    async with Client(stdio_client(peer), mode="legacy") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["chat-with-guide", "chat-with-nanobot", "list_notes", "read_note", "write_note"]
        answer = await client.call_tool("chat-with-guide", {"prompt": 'call read_note {"name": "welcome"}'})
        assert "Welcome to nanobot" in answer.content[0].text
