"""Servers that want a model or roots, and who answers them: nanobot, the client, both, or nobody."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from tests.peers.programs import serving

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("client", ["legacy", "2026-07-28"]),
    pytest.mark.parametrize("server", ["legacy", "modern"]),
]
PEER = Path(__file__).parents[1] / "peers" / "asking_server.py"


@asynccontextmanager
async def between(
    home: Path,
    client: str,
    server: str,
    *,
    says: str = "from the agent",
    callbacks: dict[str, Any] | None = None,
    run: tuple[str, ...] = (),
    **settings: Any,
) -> AsyncGenerator[Client]:
    """A client in front of nanobot with an agent, and the asking server behind it."""
    definition = {
        "command": sys.executable,
        "args": [str(PEER), "stdio"],
        "protocol": server,
        "sandbox": "off",
        **settings,
    }
    agents = {"helper": {"model": "scripted", "instructions": "Be brief."}}
    document = {"agents": agents, "mcpServers": {"peer": definition}, "publish": {"mcpServers": "peer"}}
    (home / "nanobot.yaml").write_text(json.dumps(document))
    (home / "script.json").write_text(json.dumps([{"says": says}] * 5))
    args = [str(home / "nanobot.yaml"), "--default-model", "demo", "--exclude-built-in-agents", *run]
    with serving(*args, home=home, NANOBOT_SCRIPT=str(home / "script.json")) as host:
        async with Client(host.url + "/mcp", mode=client, **(callbacks or {})) as connected:
            yield connected


async def told(connected: Client) -> str:
    try:
        [content] = (await connected.call_tool("think", {})).content
    except MCPError as refusal:
        return str(refusal)
    assert isinstance(content, types.TextContent)
    return content.text


async def of_client(context: Any, params: Any) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text="from the client")
    return types.CreateMessageResult(role="assistant", content=content, model="m")


async def agree(context: Any, params: Any) -> types.ElicitResult:
    assert "'peer' wants to use a model" in params.message
    return types.ElicitResult(action="accept", content={})


async def decline(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="decline")


async def test_an_agent_answers_whatever_the_client_can(tmp_path: Path, client: str, server: str) -> None:
    async with between(tmp_path, client, server) as connected:
        assert await told(connected) == "It says from the agent"
    async with between(tmp_path, client, server, callbacks={"sampling_callback": of_client}) as connected:
        assert await told(connected) == "It says from the agent"


async def test_a_server_whose_questions_are_for_the_client(tmp_path: Path, client: str, server: str) -> None:
    callbacks = {"sampling_callback": of_client}
    async with between(tmp_path, client, server, callbacks=callbacks, sampling="client") as connected:
        assert await told(connected) == "It says from the client"


async def test_a_server_that_may_not_ask(tmp_path: Path, client: str, server: str) -> None:
    callbacks = {"sampling_callback": of_client}
    async with between(tmp_path, client, server, callbacks=callbacks, sampling="off") as connected:
        assert "It says" not in await told(connected)


async def test_a_person_decides_once_per_session(tmp_path: Path, client: str, server: str) -> None:
    asked: list[str] = []

    async def once(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return await agree(context, params)

    callbacks = {"elicitation_callback": once}
    async with between(tmp_path, client, server, callbacks=callbacks, sampling="ask") as connected:
        assert [await told(connected) for _ in range(2)] == ["It says from the agent"] * 2
    assert len(asked) == (1 if client == "legacy" else 2)  # a modern client has no session to allow it for
    for unwilling in ({"elicitation_callback": decline}, None):
        async with between(tmp_path, client, server, callbacks=unwilling, sampling="ask") as connected:
            assert "It says" not in await told(connected)


async def rooted(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root.model_validate({"uri": "file:///theirs"})])


async def test_roots_of_the_operator_come_after_those_of_the_client(
    tmp_path: Path, client: str, server: str
) -> None:
    (tmp_path / "ours").mkdir()
    run = ("--roots", f"x:{tmp_path / 'ours'}", "-r", str(tmp_path))
    ours = f"{(tmp_path / 'ours').as_uri()}, {tmp_path.as_uri()}"
    for callbacks, expected in (
        ({"list_roots_callback": rooted}, f"file:///theirs, {ours}"),
        (None, ours),
    ):
        async with between(tmp_path, client, server, callbacks=callbacks, run=run) as connected:
            [content] = (await connected.call_tool("where", {})).content
            assert isinstance(content, types.TextContent)
            assert content.text == expected
