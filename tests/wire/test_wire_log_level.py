"""Log messages reach a client only as it wants them, and whoever writes them is told."""

from __future__ import annotations

from typing import Any

import pytest
from tests.wire.world import TinyService, modern, rpc, serving, tool

pytestmark = pytest.mark.anyio

MODERN = {"mcp_protocol_version": "2026-07-28"}


async def test_whoever_answers_is_told_which_log_messages_are_wanted() -> None:
    def said(answer: Any) -> str:
        return answer.json()["result"]["content"][0]["text"]

    params = {"name": "level"}
    named = {"mcp_method": "tools/call", "mcp_name": "level", **MODERN}
    level = {"io.modelcontextprotocol/logLevel": "warning"}
    async with serving(TinyService()) as client:
        assert said(await client.post(modern("tools/call", params), **named)) == "None"
        assert said(await client.post(modern("tools/call", params, **level), **named)) == "warning"
        await client.initialize()
        assert said(await client.post(tool("level"))) == "debug"
        await client.post(rpc("logging/setLevel", {"level": "error"}, id=2))
        assert said(await client.post(tool("level"))) == "error"
