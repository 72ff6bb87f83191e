"""A server published alone that refuses its client's token: the client is told so as HTTP does."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse
from tests.server.test_server_auth_keys import ANN, INITIALIZE, KEYS, MCP_POST, by
from tests.server.test_server_personal_headers import TOOL, load
from tests.server.world import Served, served
from tests.wire.http_peer import Answer, Asked, Peer, answer, serving

from nanobot.config.model import AuthSettings, Config, Publish
from nanobot.config.places import Reference

pytestmark = pytest.mark.anyio
SCOPE = 'Bearer realm="far", scope="files:read files:write"'
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@asynccontextmanager
async def lone(
    folder: Path, wanted: set[str], *, auth: AuthSettings | None = None, beside: bool = False
) -> AsyncGenerator[Served]:
    """A nanobot that publishes one server alone (or `beside` others), which takes the tokens in `wanted`."""

    async def far(asked: Asked) -> Answer:
        if (
            asked.verb == "POST"
            and asked.headers.get("authorization", "").removeprefix("Bearer ") not in wanted
        ):
            return JSONResponse({}, 401, headers={"WWW-Authenticate": SCOPE})
        if asked.method == "tools/list":
            return answer(asked, {"tools": [TOOL]})
        if asked.method == "tools/call":
            return answer(asked, {"content": []})
        return None

    async with serving(Peer(far)) as url:
        definition = f"far: {{url: '{url}', headers: {{Authorization: 'Bearer ${{http:bearer-token}}'}}}}"
        config = load(folder, f"mcpServers: {{{definition}}}\npublish: {{mcpServers: far}}\n")

        def adjust(plain: Config) -> Config:
            publish = Publish(
                mcp_servers=(Reference("far"),), tools=(Reference("nanobot.system"),) if beside else ()
            )
            return replace(plain, mcp_servers=config.mcp_servers | (plain.mcp_servers if beside else {}),
                           publish=publish)  # fmt: skip

        async with served(folder / "home", auth=auth, adjust=adjust) as nanobot:
            yield nanobot


def call(id: int, **meta: Any) -> dict[str, Any]:
    params: dict[str, Any] = {"name": "work", "arguments": {}}
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": "tools/call",
        "params": params | ({"_meta": meta} if meta else {}),
    }


async def test_a_refused_handshake_is_answered_401_with_the_scope_of_the_server(tmp_path: Path) -> None:
    async with lone(tmp_path, {"good"}) as nanobot:
        refused = await nanobot.ask("POST", "/mcp", INITIALIZE, MCP_POST | {"Authorization": "Bearer bad"})
        assert refused.status == 401
        challenge = refused.headers["WWW-Authenticate"]
        assert challenge.startswith('Bearer error="invalid_token"')
        assert 'scope="files:read files:write"' in challenge
        assert "resource_metadata" not in challenge  # nobody signs in here
        assert "Mcp-Session-Id" not in refused.headers
        assert refused.json["error"]["data"]["server"] == "far"
        welcome = await nanobot.ask("POST", "/mcp", INITIALIZE, MCP_POST | {"Authorization": "Bearer good"})
        assert welcome.status == 200


async def test_a_token_that_is_refused_later_is_answered_401_and_the_session_goes_on(tmp_path: Path) -> None:
    wanted = {"good"}
    async with lone(tmp_path, wanted) as nanobot:
        good, bad = {"Authorization": "Bearer good"}, {"Authorization": "Bearer bad"}
        hello = await nanobot.ask("POST", "/mcp", INITIALIZE, MCP_POST | good)
        session = MCP_POST | {"Mcp-Session-Id": hello.headers["Mcp-Session-Id"]}
        listed = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        assert (await nanobot.ask("POST", "/mcp", listed, session | good)).status == 200
        refused = await nanobot.ask("POST", "/mcp", call(2), session | bad)
        assert refused.status == 401
        assert 'scope="files:read files:write"' in refused.headers["WWW-Authenticate"]
        assert (await nanobot.ask("POST", "/mcp", call(3), session | good)).json["result"] == {"content": []}


async def test_a_modern_client_is_told_likewise(tmp_path: Path) -> None:
    async with lone(tmp_path, {"good"}) as nanobot:
        headers = MCP_POST | {
            "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "work",
        }  # fmt: skip
        refused = await nanobot.ask(
            "POST", "/mcp", call(1, **MODERN), headers | {"Authorization": "Bearer bad"}
        )
        assert refused.status == 401
        assert "files:read" in refused.headers["WWW-Authenticate"]
        without = await nanobot.ask("POST", "/mcp", call(2, **MODERN), headers)
        assert without.status == 401


async def test_where_people_sign_in_the_challenge_says_where(tmp_path: Path) -> None:
    async with lone(tmp_path, {"another"}, auth=KEYS) as nanobot:
        refused = await nanobot.ask("POST", "/mcp", INITIALIZE, MCP_POST | by(ANN))
        assert refused.status == 401
        metadata = f'resource_metadata="{nanobot.url}/.well-known/oauth-protected-resource/mcp"'
        assert metadata in refused.headers["WWW-Authenticate"]
        assert 'scope="files:read files:write"' in refused.headers["WWW-Authenticate"]


async def test_a_server_among_others_is_not_the_reason_for_a_401(tmp_path: Path) -> None:
    async with lone(tmp_path, {"good"}, beside=True) as nanobot:
        welcome = await nanobot.ask("POST", "/mcp", INITIALIZE, MCP_POST | {"Authorization": "Bearer bad"})
        assert welcome.status == 200
