"""Clients of HTTP+SSE, the transport of 2024-11-05, are served where that was asked for."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from tests.peers.programs import serving
from tests.server.world import Events, Served, served

from nanobot.config.model import ApiKey, AuthSettings

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2024-11-05",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


async def endpoint_of(events: Events) -> str:
    event = await events.next()
    assert event is not None
    assert event.event == "endpoint"
    return event.data.decode()


async def message_of(events: Events) -> Any:
    with anyio.fail_after(20):
        event = await events.next()
    assert event is not None
    assert event.event == "message"
    return json.loads(event.data)


async def test_the_official_client_uses_it(tmp_path: Path) -> None:
    config = tmp_path / "nanobot.yaml"
    config.write_text("publish: {mcpServers: nanobot.system}\n")
    with serving(str(config), "--default-model", "demo", "--legacy-sse", home=tmp_path) as server:
        async with Client(sse_client(server.url + "/sse"), mode="legacy") as client:
            assert "bash" in {tool.name for tool in (await client.list_tools()).tools}
            result = await client.call_tool("todoWrite", {"todos": []})
            assert not result.is_error


async def test_nobody_asked_for_it(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        assert (await here.ask("GET", "/sse")).status == 404
        assert (await here.ask("POST", "/messages?sessionId=x", HELLO)).status == 404


async def test_a_session_lasts_as_long_as_its_stream(tmp_path: Path) -> None:
    async with served(tmp_path, with_sse=True) as here:
        async with here.events("/sse") as events:
            endpoint = await endpoint_of(events)
            assert (await here.ask("POST", endpoint, HELLO)).status == 202
            answer = await message_of(events)
            assert answer["id"] == 1
            assert answer["result"]["protocolVersion"] == "2024-11-05"
        await gone(here, endpoint)


async def gone(here: Served, endpoint: str) -> None:
    """Wait until nobody takes messages there any more."""
    with anyio.fail_after(20):
        while (await here.ask("POST", endpoint, HELLO)).status != 404:
            await anyio.lowlevel.checkpoint()


async def test_what_is_no_message_is_refused_at_once_and_ends_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, with_sse=True) as here, here.events("/sse") as events:
        endpoint = await endpoint_of(events)
        assert (await here.ask("POST", endpoint, b"{", JSON)).status == 400
        assert (await here.ask("POST", endpoint, b"[]", JSON)).status == 400
        assert (await here.ask("POST", endpoint, b"{}", {"Content-Type": "text/plain"})).status == 415
        assert (await here.ask("POST", "/messages", HELLO)).status == 400
        assert (await here.ask("POST", "/messages?sessionId=other", HELLO)).status == 404
        assert (await here.ask("GET", endpoint)).status == 405
        assert (await here.ask("POST", "/sse", HELLO)).status == 405
        assert (await here.ask("GET", "/sse", headers={"Accept": "application/json"})).status == 406
        assert (await here.ask("POST", endpoint, HELLO)).status == 202
        assert (await message_of(events))["id"] == 1


async def test_pages_of_others_reach_it_no_more_than_anything_else(tmp_path: Path) -> None:
    async with served(tmp_path, with_sse=True) as here:
        assert (await here.ask("GET", "/sse", headers={"Origin": "https://evil.example"})).status == 403
        assert (await here.ask("GET", "/sse", headers={"Host": "evil.example"})).status == 421


async def test_it_takes_the_same_sign_in_and_a_session_belongs_to_its_account(tmp_path: Path) -> None:
    ada, bob = ({"Authorization": f"Bearer {name}-key-0123456789"} for name in ("ada", "bob"))
    keys = AuthSettings(
        api_keys=tuple(
            ApiKey(name=name, sha256=hashlib.sha256(f"{name}-key-0123456789".encode()).hexdigest())
            for name in ("ada", "bob")
        )
    )
    async with served(tmp_path, with_sse=True, auth=keys) as here:
        assert (await here.ask("GET", "/sse")).status == 401
        async with here.events("/sse", headers=ada) as events:
            endpoint = await endpoint_of(events)
            assert (await here.ask("POST", endpoint, HELLO)).status == 401
            assert (await here.ask("POST", endpoint, HELLO, bob)).status == 404
            assert (await here.ask("POST", endpoint, HELLO, ada)).status == 202
            assert (await message_of(events))["id"] == 1
