"""What becomes of calls that pass hooks of every kind, as a client sees it."""

from __future__ import annotations

import json
import socket
import sys
import urllib.request
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from mcp import Client, MCPError
from mcp.types import Implementation
from tests.peers.programs import QUICKSTART, serving

from nanobot.aio import task_group

pytestmark = pytest.mark.anyio

MASK = """\
export default function mask(event: {accept: boolean; mutated: boolean; message: any}) {
  const text = JSON.stringify(event.message.result ?? null);
  const masked = text.replace(/[\\w.]+@[\\w.]+/g, "***");
  if (masked === text) return undefined;
  return {mutated: true, message: {...event.message, result: JSON.parse(masked)}, reason: "masked"};
}
"""
DENY = """\
def check(event):
    name = event["message"]["params"]["arguments"]["name"]
    return {"accept": name != "secret", "reason": f"{name} is not for you"}
"""
DOOR = """\
from pathlib import Path

CLOSED = Path(__file__).parent / "closed"


def door(payload):
    if CLOSED.exists():
        return {"accept": False, "reason": "come back tomorrow"}
    return {"_meta": {"greeting": f"Hello, {payload['client']['name']}."}}


def deny(payload):
    return {"accept": False, "reason": "the vault is shut"}
"""


@pytest.fixture
def silent() -> Generator[str]:
    """The address of something that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/hook"


@asynccontextmanager
async def hooked(home: Path, silent: str, era: str) -> AsyncGenerator[Client]:
    (home / "mask.ts").write_text(MASK)
    (home / "deny.py").write_text(DENY)
    (home / "nanobot.yaml").write_text(
        f"mcpServers:\n  notes:\n    command: {sys.executable}\n"
        f"    args: [{QUICKSTART / 'notes_server.py'}]\n    sandbox: off\n    hooks:\n"
        '      "tools/call?direction=response": ./mask.ts\n'
        '      "tools/call?direction=request&name=read_note": ./deny.py#check\n'
        f'      "tools/call?direction=request&name=list_notes": {silent}\n'
        "publish: {mcpServers: notes}\n"
    )
    args = [str(home / "nanobot.yaml"), "--default-model", "demo", "--exclude-built-in-agents"]
    with serving(*args, home=home) as host:
        async with Client(host.url + "/mcp", mode=era) as client:
            yield client


async def outcome(client: Client, tool: str, **arguments: str) -> str:
    """The text of the result, or code and message of the error."""
    try:
        return (await client.call_tool(tool, arguments)).content[0].text
    except MCPError as e:
        return f"{e.error.code} {e.error.message}"


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_the_outcomes(era: str, silent: str, tmp_path: Path) -> None:
    async with hooked(tmp_path, silent, era) as client:
        await client.call_tool("write_note", {"name": "ann", "text": "Ask ann.lee@example.com or b@x.org!"})
        await client.call_tool("write_note", {"name": "secret", "text": "never seen"})
        table = {
            "masked by TypeScript": await outcome(client, "read_note", name="ann"),
            "left alone": await outcome(client, "read_note", name="shopping"),
            "denied by Python": await outcome(client, "read_note", name="secret"),
            "failed with its webhook": await outcome(client, "list_notes"),
        }
    assert table["masked by TypeScript"] == "Ask *** or ***!"
    assert table["left alone"] == "Apples, bread, tea."
    assert table["denied by Python"].startswith("-32010")
    assert "secret is not for you" in table["denied by Python"]
    assert table["failed with its webhook"].startswith("-32")
    assert "welcome" not in table["failed with its webhook"]


def states_at(url: str) -> dict[str, Any]:
    """What the host knows of its servers, by name."""
    with urllib.request.urlopen(url + "/api/servers") as answer:
        return {one["name"]: one for one in json.loads(answer.read())["servers"]}


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_who_is_let_in_and_which_servers_are(era: str, tmp_path: Path) -> None:
    (tmp_path / "door.py").write_text(DOOR)
    closed = tmp_path / "closed"
    peer = f"    command: {sys.executable}\n    args: [{QUICKSTART / 'notes_server.py'}]\n    sandbox: off\n"
    (tmp_path / "nanobot.yaml").write_text(
        f"mcpServers:\n  notes:\n{peer}  vault:\n{peer}    toolPrefix: vault_\n    hooks:\n"
        "      initialize: ./door.py#deny\n      server/discover: ./door.py#deny\n"
        "hooks: {session: ./door.py#door}\npublish: {mcpServers: [notes, vault]}\n"
    )
    args = [str(tmp_path / "nanobot.yaml"), "--default-model", "demo", "--exclude-built-in-agents"]
    with serving(*args, home=tmp_path) as host:
        closed.touch()
        with pytest.raises(MCPError, match="come back tomorrow") as refusal:
            async with task_group(), Client(host.url + "/mcp", mode=era) as client:
                await client.list_tools()
        assert refusal.value.error.code == -32010
        closed.unlink()

        async with Client(
            host.url + "/mcp", mode=era, client_info=Implementation(name="ann", version="1")
        ) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            closed.touch()  # for those who come now
            assert (await client.call_tool("list_notes", {})).content
            states = await to_thread.run_sync(states_at, host.url)
            if era == "legacy":
                told = client.server_capabilities.experimental or {}
                assert told["ai.nanobot"]["session"] == {"greeting": "Hello, ann."}
        assert "list_notes" in tools
        assert "vault_list_notes" not in tools

        assert states["notes"]["state"] == "ready"
        assert states["vault"]["state"] == "failed"
        assert "the vault is shut" in states["vault"]["lastError"]
