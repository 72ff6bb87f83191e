"""Which path leads where, and what stands at its end."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from tests.server.world import served

from nanobot.config.model import ServerSettings
from nanobot.wire.versions import ALL_VERSIONS

pytestmark = pytest.mark.anyio

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


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/mcp/ui", "/mcp/chat", "/"])
async def test_mcp_is_answered_at_its_paths_whatever_the_client_calls_itself(
    path: str, tmp_path: Path
) -> None:
    async with served(tmp_path) as nanobot:
        for agent in ("Mozilla/5.0", "curl/8"):
            answer = await nanobot.ask("POST", path, INITIALIZE, {**MCP_POST, "User-Agent": agent})
            assert answer.status == 200
            assert answer.json["result"]["protocolVersion"] == "2025-11-25"


async def test_the_page_is_shown_to_whoever_gets_the_root(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        for agent in ("Mozilla/5.0", "curl/8"):
            page = await nanobot.ask("GET", "/", headers={"User-Agent": agent})
            assert page.headers["content-type"] == "text/html; charset=utf-8"


NOTHING_THERE = [
    *("/api", "/api/", "/api/nothing", "/api/threads/", "/api/threads/x/y", "/mcp/nothing"),
    *("/favicon.ico", "/assets/missing.js", "/assets/../__init__.py", "/__init__.py", "/AGENTS.md"),
    *("/c/", "/c/a/b", "//"),
]


@pytest.mark.parametrize("path", NOTHING_THERE)
async def test_an_unknown_path_is_a_404_with_a_sentence(path: str, tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        answer = await nanobot.ask("GET", path)
        assert (answer.status, answer.json["error"]["code"]) == (404, "not_found")


async def test_a_wrong_method_is_told_the_right_ones(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        refused = await nanobot.ask("PUT", "/api/threads")
        assert (refused.status, refused.headers["allow"]) == (405, "GET, POST, OPTIONS")
        asked = await nanobot.ask("OPTIONS", "/api/threads")
        assert (asked.status, asked.headers["allow"]) == (204, "GET, POST, OPTIONS")
        assert (await nanobot.ask("DELETE", "/")).status == 405


async def test_version_agents_and_servers(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        version = (await nanobot.ask("GET", "/api/version")).json
        assert version["protocolVersions"] == list(ALL_VERSIONS)
        assert version["version"]
        agents = (await nanobot.ask("GET", "/api/agents")).json["agents"]
        assert [(a["id"], a["name"], a["default"]) for a in agents] == [
            ("main", "Main", True),
            ("other", "other", False),
        ]
        assert agents[0]["starterMessages"] == ["Hi"]
        assert (await nanobot.ask("GET", "/api/servers")).json == {"servers": []}


async def test_health_is_json_and_not_kept(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        well = await nanobot.ask("GET", "/healthz")
        assert (well.status, well.json["status"], well.json["checks"]["database"]) == (200, "ok", "ok")
        assert well.headers["cache-control"] == "no-store"
        assert (await nanobot.ask("GET", "/healthz?live=1")).json["status"] == "ok"
        head = await nanobot.ask("HEAD", "/healthz")
        assert (head.status, head.body) == (200, b"")
        assert (await nanobot.ask("GET", "/api/threads")).json == {"threads": []}


async def test_an_unchanged_file_is_not_sent_again(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        first = await nanobot.ask("GET", "/assets/app.js")
        assert first.headers["cache-control"] == "no-cache"
        again = await nanobot.ask("GET", "/assets/app.js", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status, again.body) == (304, b"")
        assert (await nanobot.ask("HEAD", "/")).body == b""


async def raw(url: str, request: bytes) -> bytes:
    """What a socket answers to these bytes."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    with anyio.fail_after(20):
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(request)
            answer = b""
            try:
                while True:
                    answer += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return answer


async def test_headers_without_end_are_cut_off(tmp_path: Path) -> None:
    flood = b"GET /api/version HTTP/1.1\r\nHost: localhost\r\n" + b"X-Filler: yes\r\n" * 40_000
    endless = b"GET /api/version HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"y" * 600_000
    async with served(tmp_path) as nanobot:
        for request in (flood, endless):
            answer = await raw(nanobot.url, request)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")


async def test_blanks_around_the_value_of_a_header_are_no_part_of_it(tmp_path: Path) -> None:
    request = b"GET /api/version HTTP/1.1\r\nHost: \t localhost \t \r\nConnection: close\r\n\r\n"
    async with served(tmp_path) as nanobot:
        assert (await raw(nanobot.url, request)).startswith(b"HTTP/1.1 200 ")


async def test_two_hosts_in_one_request_are_refused(tmp_path: Path) -> None:
    twice = b"GET /api/version HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\nConnection: close\r\n\r\n"
    none = b"GET /api/version HTTP/1.0\r\n\r\n"
    async with served(tmp_path) as nanobot:
        assert (await raw(nanobot.url, twice)).startswith(b"HTTP/1.1 421 ")
        assert (await raw(nanobot.url, none)).startswith(b"HTTP/1.1 421 ")


async def test_a_body_over_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    declared = (
        b"POST /api/threads HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 99999999\r\n\r\n{"
    )
    chunked = (
        b"POST /api/threads HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n" + (b"3e8\r\n" + b" " * 1000 + b"\r\n") * 6
    )
    async with served(tmp_path, settings=ServerSettings(max_body_bytes=4000)) as nanobot:
        for request in (declared, chunked):
            answer = await raw(nanobot.url, request)
            assert answer.startswith(b"HTTP/1.1 413 ")
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "too_large"


async def test_a_large_body_followed_by_another_request_is_no_large_header(tmp_path: Path) -> None:
    body = b'{"title":"' + b" " * 150 + b'"}' + b" " * 200_000
    post = (
        b"POST /api/threads HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body
    )
    get = b"GET /api/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    async with served(tmp_path) as nanobot:
        answer = await raw(nanobot.url, post + get)
    assert answer.startswith(b"HTTP/1.1 201 ")
    assert b"HTTP/1.1 200 OK" in answer
