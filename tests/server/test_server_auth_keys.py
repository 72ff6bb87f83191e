"""API keys, the challenge of those who have none, and that two accounts never meet."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from tests.server.world import served

from nanobot.aio import task_group
from nanobot.config.model import ApiKey, AuthSettings, Config, McpServer, ServerSettings
from nanobot.config.places import Reference
from nanobot.errors import ConfigError
from nanobot.server.security import check_listen_address

pytestmark = pytest.mark.anyio

ANN, BOB = "nb-ann-CANARYaaaaaaaa", "nb-bob-CANARYbbbbbbbb"
KEYS = AuthSettings(
    api_keys=tuple(
        ApiKey(name=name, sha256=hashlib.sha256(key.encode()).hexdigest())
        for name, key in (("ann", ANN), ("bob", BOB))
    )
)
MCP_POST = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


def by(key: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}", **more}


CLOSED = [
    ("GET", "/"),
    ("GET", "/c/x"),
    ("GET", "/assets/app.js"),
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("DELETE", "/mcp"),
    ("POST", "/"),
    ("GET", "/api/threads"),
    ("POST", "/api/threads"),
    ("GET", "/api/events/x"),
    ("GET", "/api/agents"),
    ("GET", "/api/servers"),
    ("GET", "/nothing"),
    ("PUT", "/mcp/ui"),
]


@pytest.mark.parametrize(("method", "path"), CLOSED)
async def test_r12_nothing_is_answered_without_a_key(method: str, path: str, tmp_path: Path) -> None:
    async with served(tmp_path, auth=KEYS) as nanobot:
        for headers in ({}, by("wrong"), {"Authorization": f"Basic {ANN}"}, {"Authorization": ANN}):
            refused = await nanobot.ask(method, path, {} if method == "POST" else None, headers)
            assert refused.status == 401, (headers, refused.body)
            assert refused.headers["www-authenticate"].startswith("Bearer ")
            assert refused.json["error"] in ("unauthorized", "invalid_token")


@pytest.mark.parametrize("path", ["/healthz", "/api/version", "/.well-known/oauth-protected-resource"])
async def test_what_is_needed_before_signing_in_is_open(path: str, tmp_path: Path) -> None:
    async with served(tmp_path, auth=KEYS) as nanobot:
        assert (await nanobot.ask("GET", path)).status in (200, 503)


async def test_the_challenge_names_the_metadata_and_an_error_only_if_something_was_sent(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, auth=KEYS) as nanobot:
        where = f'resource_metadata="{nanobot.url}/.well-known/oauth-protected-resource/mcp"'
        silent = await nanobot.ask("POST", "/mcp", INITIALIZE, MCP_POST)
        assert silent.headers["www-authenticate"] == f"Bearer {where}"
        assert silent.json["error"] == "unauthorized"
        wrong = await nanobot.ask("POST", "/mcp", INITIALIZE, MCP_POST | by("nb-wrong"))
        assert (
            wrong.headers["www-authenticate"]
            == f'Bearer error="invalid_token", error_description="The token is not known.", {where}'
        )
        metadata = (await nanobot.ask("GET", "/.well-known/oauth-protected-resource/mcp")).json
        assert metadata == {
            "resource": f"{nanobot.url}/mcp",
            "resource_name": "nanobot",
            "bearer_methods_supported": ["header"],
        }
        other = await nanobot.ask("GET", "/.well-known/oauth-protected-resource/evil")
        assert other.status == 404


async def test_the_official_client_works_with_a_key_and_not_without(tmp_path: Path) -> None:
    async with served(tmp_path, auth=KEYS) as nanobot:
        async with (
            httpx2.AsyncClient(headers=by(ANN)) as http,
            streamable_http_client(f"{nanobot.url}/mcp", http_client=http) as (read, write, *_),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            assert "chat-with-main" in [tool.name for tool in (await session.list_tools()).tools]


async def test_r10_two_accounts_never_meet(tmp_path: Path) -> None:
    async with served(tmp_path, auth=KEYS) as nanobot:
        ann = (await nanobot.ask("POST", "/api/threads", {"key": "k"}, by(ANN))).json["id"]
        bob = (await nanobot.ask("POST", "/api/threads", {"key": "k"}, by(BOB))).json["id"]
        assert ann != bob
        unknown = "00000000-0000-4000-8000-000000000000"
        for method, path, body in (
            ("GET", "/api/threads/{}", None),
            ("PATCH", "/api/threads/{}", {"title": "x"}),
            ("POST", "/api/threads/{}/stop", None),
            ("POST", "/api/threads/{}/messages", {"text": "x"}),
            ("GET", "/api/events/{}", None),
            ("DELETE", "/api/threads/{}", None),
        ):
            foreign = await nanobot.ask(method, path.format(ann), body, by(BOB))
            nothing = await nanobot.ask(method, path.format(unknown), body, by(BOB))
            assert (foreign.status, nothing.status) == (404, 404), path
            assert foreign.json["error"]["message"].replace(ann, unknown) == nothing.json["error"]["message"]
        listed = await nanobot.ask("GET", "/api/threads", headers=by(BOB))
        assert [t["id"] for t in listed.json["threads"]] == [bob]
        assert (await nanobot.ask("GET", f"/api/threads/{ann}", headers=by(ANN))).status == 200


async def test_r10_a_foreign_mcp_session_looks_like_an_unknown_one(tmp_path: Path) -> None:
    async with served(tmp_path, auth=KEYS) as nanobot:
        opened = await nanobot.ask("POST", "/mcp", INITIALIZE, MCP_POST | by(ANN))
        session = opened.headers["mcp-session-id"]
        for named in (session, "00000000-0000-4000-8000-000000000000"):
            headers = MCP_POST | by(BOB) | {"Mcp-Session-Id": named}
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            answers = [
                await nanobot.ask("POST", "/mcp", ping, headers),
                await nanobot.ask("POST", f"/mcp/{named}", ping, MCP_POST | by(BOB)),
                await nanobot.ask("GET", "/mcp", None, headers | {"Accept": "text/event-stream"}),
                await nanobot.ask("DELETE", "/mcp", None, headers),
            ]
            assert [a.status for a in answers] == [404] * 4
            assert {a.json["error"]["message"] for a in answers} == {"Session not found"}
        again = await nanobot.ask(
            "POST",
            "/mcp",
            {"jsonrpc": "2.0", "id": 2, "method": "ping"},
            MCP_POST | by(ANN) | {"Mcp-Session-Id": session},
        )
        assert again.status == 200


async def test_r10_a_conversation_over_mcp_cannot_be_continued_by_another_account(tmp_path: Path) -> None:
    async with served(tmp_path, auth=KEYS) as nanobot:
        thread = (await nanobot.ask("POST", "/api/threads", {}, by(ANN))).json["id"]
        async with (
            httpx2.AsyncClient(headers=by(BOB)) as http,
            streamable_http_client(f"{nanobot.url}/mcp", http_client=http) as (read, write, *_),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            with anyio.fail_after(20), pytest.raises(MCPError, match="unknown session"):
                await session.call_tool("chat-with-main", {"prompt": "hi"}, meta=in_thread(thread))
        shown = await nanobot.ask("GET", f"/api/threads/{thread}", headers=by(ANN))
        assert shown.json["messages"] == []


def in_thread(id: str) -> Any:
    return {"ai.nanobot/session": id}


async def test_pages_of_any_origin_may_use_tokens_but_never_credentials(tmp_path: Path) -> None:
    page = {"Origin": "https://elsewhere.example"}
    async with served(tmp_path, auth=KEYS) as nanobot:
        asked = await nanobot.ask(
            "OPTIONS",
            "/mcp",
            headers=page
            | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"},
        )
        assert (asked.status, asked.headers["access-control-allow-origin"]) == (204, "*")
        assert asked.headers["access-control-allow-headers"] == "authorization"
        used = await nanobot.ask("POST", "/mcp", INITIALIZE, MCP_POST | by(ANN) | page)
        assert (used.status, used.headers["access-control-allow-origin"]) == (200, "*")
        refused = await nanobot.ask("POST", "/mcp", INITIALIZE, MCP_POST | page)
        assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, "*")
        assert "WWW-Authenticate" in refused.headers["access-control-expose-headers"]
        for answer in (asked, used, refused):
            assert "access-control-allow-credentials" not in answer.headers
        assert (await nanobot.ask("GET", "/api/agents", headers=by(ANN) | page)).status == 403
        assert (await nanobot.ask("POST", "/login", headers=page)).status == 403


async def test_addresses_mean_this_server_names_must_be_listed(tmp_path: Path) -> None:
    settings = ServerSettings(public_url="https://bot.example")
    hosts = {
        "10.1.2.3:8080": 200,
        "[fd00::1]": 200,
        "bot.example": 200,
        "localhost": 200,
        "evil.example": 421,
        "10.1.2.3.evil.example": 421,
    }
    async with served(tmp_path, auth=KEYS, settings=settings) as nanobot:
        got = {h: (await nanobot.ask("GET", "/api/version", headers={"Host": h})).status for h in hosts}
        assert got == hosts
        where = (await nanobot.ask("GET", "/.well-known/oauth-protected-resource/mcp")).json["resource"]
        assert where == "https://bot.example/mcp"


def test_r13_with_authentication_other_machines_may_be_listened_to() -> None:
    check_listen_address("0.0.0.0", is_protected=True)
    with pytest.raises(ConfigError, match="auth"):
        check_listen_address("0.0.0.0")


async def test_r15_a_callers_token_is_sent_to_no_server_that_we_use(tmp_path: Path) -> None:
    sent = bytearray()

    async def record(stream: SocketStream) -> None:
        async with stream:
            while b"\r\n\r\n" not in sent:
                sent.extend(await stream.receive())
            await stream.send(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, task_group() as group:
        group.start_soon(listener.serve, record)
        port = listener.extra(SocketAttribute.local_port)
        server = McpServer(name="up", url=f"http://127.0.0.1:{port}/mcp")

        def with_server(config: Config) -> Config:
            publish = replace(config.publish, mcp_servers=(Reference(server="up"),))
            return replace(config, mcp_servers={"up": server}, publish=publish)

        async with served(tmp_path, auth=KEYS, adjust=with_server) as nanobot:
            opened = await nanobot.ask("POST", "/mcp", INITIALIZE, MCP_POST | by(ANN))
            headers = MCP_POST | by(ANN) | {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
            asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
            await nanobot.ask("POST", "/mcp", asked, headers)
        group.cancel_scope.cancel()
    assert b"initialize" in sent or b"POST /mcp" in sent
    assert b"CANARY" not in sent


async def test_r21_keys_are_in_no_answer_and_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with served(tmp_path, auth=KEYS) as nanobot:
        answers = [
            await nanobot.ask("GET", "/api/threads", headers=by(ANN)),
            await nanobot.ask("GET", "/api/threads", headers=by(ANN + "x")),
            await nanobot.ask("GET", "/api/threads", headers=by(f"{ANN} {BOB}")),
            await nanobot.ask("POST", "/mcp", INITIALIZE, MCP_POST | by(ANN)),
        ]
    assert [a.status for a in answers] == [200, 401, 401, 200]
    assert not any("CANARY" in f"{a.headers}{a.body!r}" for a in answers)
    assert not any("CANARY" in f"{r.getMessage()}{r.__dict__}" for r in caplog.records)
