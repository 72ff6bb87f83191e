"""Who may talk to a server on loopback: hosts, origins, and what a browser is told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.server.world import served

from nanobot.config.model import ServerSettings
from nanobot.errors import ConfigError
from nanobot.server.security import check_listen_address

pytestmark = pytest.mark.anyio

OPEN = ServerSettings(
    allowed_hosts=("bot.example", "pinned.example:9000"), cors_origins=("https://app.example",)
)
PATHS = [
    ("GET", "/api/version"),
    ("POST", "/mcp"),
    ("POST", "/"),
    ("GET", "/healthz"),
    ("GET", "/"),
    ("GET", "/api/events/x"),
    ("POST", "/api/threads"),
]

HOSTS = {
    "localhost": 200,
    "localhost:1": 200,
    "LOCALHOST:80": 200,
    "127.0.0.1:65535": 200,
    "[::1]": 200,
    "[::1]:8080": 200,
    "bot.example": 200,
    "bot.example:443": 200,
    "Bot.Example": 200,
    "pinned.example:9000": 200,
    "pinned.example": 421,
    "pinned.example:9001": 421,
    "evil.example": 421,
    "localhost.evil.example": 421,
    "127.0.0.1.evil.example:8080": 421,
    "localhost:": 421,
    "localhost:8080x": 421,
    "localhost@evil.example": 421,
    "0.0.0.0": 421,
    "": 421,
}

ORIGINS = {
    "http://localhost:3000": 200,
    "http://127.0.0.1": 200,
    "http://[::1]:5173": 200,
    "https://app.example": 200,
    "https://app.example:444": 403,
    "http://app.example": 403,
    "https://evil.example": 403,
    "http://localhost.evil.example": 403,
    "http://localhost@evil.example": 403,
    "null": 403,
    "file://": 403,
    "chrome-extension://abcdef": 403,
    "http://": 403,
    "": 403,
}


async def test_r11_only_hosts_that_mean_this_server_are_answered(tmp_path: Path) -> None:
    async with served(tmp_path, settings=OPEN) as nanobot:
        got = {
            host: (await nanobot.ask("GET", "/api/version", headers={"Host": host})).status for host in HOSTS
        }
    assert got == HOSTS


async def test_r11_only_pages_of_this_machine_or_of_listed_origins_are_answered(tmp_path: Path) -> None:
    async with served(tmp_path, settings=OPEN) as nanobot:
        got = {
            origin: (await nanobot.ask("GET", "/api/version", headers={"Origin": origin})).status
            for origin in ORIGINS
        }
    assert got == ORIGINS


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_r11_every_route_is_behind_the_gate(method: str, path: str, tmp_path: Path) -> None:
    rebound = {"Host": "evil.example"}
    foreign = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
    body = b'{"text":"x"}' if method == "POST" else None
    async with served(tmp_path) as nanobot:
        assert (await nanobot.ask(method, path, body, rebound)).status == 421
        refused = await nanobot.ask(method, path, body, foreign)
        assert refused.status == 403
        assert "access-control-allow-origin" not in refused.headers
        assert refused.json["error"]["code"] == "foreign_origin"
        assert await nanobot.app.engine.threads() == []


async def test_a_page_behind_an_allowed_host_may_ask_its_own_server(tmp_path: Path) -> None:
    own = {"Host": "bot.example", "Origin": "https://bot.example"}
    async with served(tmp_path, settings=OPEN) as nanobot:
        assert (await nanobot.ask("GET", "/api/version", headers=own)).status == 200


@pytest.mark.parametrize(
    ("method", "mode", "status"),
    [("GET", "navigate", 200), ("GET", "no-cors", 403), ("POST", "navigate", 403)],
)
async def test_another_site_can_link_here_but_not_embed_or_post(
    method: str, mode: str, status: int, tmp_path: Path
) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode}
    async with served(tmp_path) as nanobot:
        assert (await nanobot.ask(method, "/", headers=headers)).status == status


async def test_cors_names_the_origin_and_never_everybody(tmp_path: Path) -> None:
    origin = "https://app.example"
    ask = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type,mcp-session-id",
    }
    async with served(tmp_path, settings=OPEN) as nanobot:
        for path in ("/mcp", "/api/threads"):
            preflight = await nanobot.ask("OPTIONS", path, headers=ask)
            assert (preflight.status, preflight.body) == (204, b"")
            assert preflight.headers["access-control-allow-origin"] == origin
            assert preflight.headers["access-control-allow-headers"] == "content-type,mcp-session-id"
            assert "POST" in preflight.headers["access-control-allow-methods"]
            assert "Origin" in preflight.headers["vary"]
            assert "access-control-allow-credentials" not in preflight.headers
        answer = await nanobot.ask("GET", "/api/version", headers={"Origin": origin})
        assert answer.headers["access-control-allow-origin"] == origin
        assert answer.headers["vary"] == "Origin"
        assert "Mcp-Session-Id" in answer.headers["access-control-expose-headers"]
        assert "access-control-allow-origin" not in (await nanobot.ask("GET", "/api/version")).headers


@pytest.mark.parametrize(("origin", "status"), [("https://evil.example", 403), ("http://localhost", 404)])
async def test_r11_a_websocket_upgrade_passes_the_same_gate(origin: str, status: int, tmp_path: Path) -> None:
    upgrade = {
        "Origin": origin,
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    async with served(tmp_path) as nanobot:
        assert (await nanobot.ask("GET", "/ws", headers=upgrade)).status == status


async def test_r14_forwarded_headers_are_not_believed(tmp_path: Path) -> None:
    forged = {"X-Forwarded-Host": "localhost", "Forwarded": "host=localhost", "Host": "evil.example"}
    async with served(tmp_path) as nanobot:
        assert (await nanobot.ask("GET", "/api/version", headers=forged)).status == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]", "LocalHost"])
def test_r13_loopback_can_be_listened_on(host: str) -> None:
    check_listen_address(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "192.168.1.5", "example.org", "localhost.evil", "10.0.0.1"]
)
def test_r13_nothing_beyond_loopback_is_listened_on_without_authentication(host: str) -> None:
    with pytest.raises(ConfigError, match="without signing in"):
        check_listen_address(host)


def headers_of(policy: str) -> Mapping[str, str]:
    return dict(part.strip().partition(" ")[::2] for part in policy.split(";"))


async def test_pages_run_their_own_files_and_nothing_else(tmp_path: Path) -> None:
    async with served(tmp_path) as nanobot:
        for path in ("/", "/c/some-thread", "/assets/app.js", "/assets/app.css"):
            page = await nanobot.ask("GET", path)
            assert page.status == 200
            policy = headers_of(page.headers["content-security-policy"])
            assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
            assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
            assert policy["require-trusted-types-for"] == "'script'"
            assert page.headers["x-content-type-options"] == "nosniff"
            assert page.headers["referrer-policy"] == "no-referrer"
            assert page.headers["cross-origin-opener-policy"] == "same-origin"
        html = (await nanobot.ask("GET", "/")).body.decode()
        assert "<style" not in html
        assert " style=" not in html
        assert " onclick=" not in html
        assert html.count("<script") == html.count('<script type="module" src="/assets/')
        assert "http://" not in html
        assert "https://" not in html
