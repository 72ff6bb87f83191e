"""Signing in with a browser: the launch secret, API keys in the form, cookies, and what proxies say."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import urlencode

import anyio
import httpx2
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from tests.server.world import Answer, Served, served

from nanobot.config.model import ApiKey, AuthSettings, ServerSettings
from nanobot.errors import ConfigError
from nanobot.server.auth.launch_secret import FILE, load_launch_secret

pytestmark = pytest.mark.anyio

SECRET = ServerSettings(require_secret=True)
KEY = "nb-ann-CANARYaaaaaaaa"
KEYS = AuthSettings(api_keys=(ApiKey(name="ann", sha256=hashlib.sha256(KEY.encode()).hexdigest()),))
NAVIGATE = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none", "Accept": "text/html"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def cookie_of(answer: Answer) -> dict[str, str]:
    value, *attributes = answer.headers["set-cookie"].split("; ")
    assert "HttpOnly" in attributes
    assert "SameSite=Strict" in attributes
    assert "Path=/" in attributes
    return {"Cookie": value}


async def sign_in(nanobot: Served, secret: str, **more: str) -> Answer:
    body = urlencode({"secret": secret, "next": "/c/x"}).encode()
    return await nanobot.ask("POST", "/login", body, FORM | {"Origin": nanobot.url} | more)


async def test_r12_the_secret_is_asked_for_and_its_file_is_private(tmp_path: Path) -> None:
    async with served(tmp_path, settings=SECRET) as nanobot:
        assert (await nanobot.ask("GET", "/api/threads")).status == 401
        assert (await nanobot.ask("POST", "/mcp", {})).status == 401
        file = tmp_path / FILE
        assert file.stat().st_mode & 0o777 == 0o600
        bearer = {"Authorization": f"Bearer {file.read_text().strip()}"}
        assert (await nanobot.ask("GET", "/api/threads", headers=bearer)).status == 200


async def test_r12_the_link_of_the_start_signs_one_browser_in_and_then_no_more(tmp_path: Path) -> None:
    async with served(tmp_path, settings=SECRET) as nanobot:
        await nanobot.app.engine.open_thread(key="cli:direct")
        (link,) = nanobot.invitations
        path = link.removeprefix(nanobot.url)
        welcome = await nanobot.ask("GET", path, headers=NAVIGATE)
        assert (welcome.status, welcome.headers["location"]) == (303, "/")
        cookie = cookie_of(welcome)
        listed = await nanobot.ask("GET", "/api/threads", headers=cookie)
        assert [t["key"] for t in listed.json["threads"]] == ["cli:direct"]  # the owner's own
        again = await nanobot.ask("GET", path, headers=NAVIGATE)
        assert again.status == 403
        assert "set-cookie" not in again.headers


async def test_a_person_without_a_session_is_sent_to_sign_in_and_back(tmp_path: Path) -> None:
    async with served(tmp_path, auth=KEYS) as nanobot:
        sent = await nanobot.ask("GET", "/c/abc?x=1", headers=NAVIGATE)
        assert (sent.status, sent.headers["location"]) == (303, "/login?next=/c/abc%3Fx%3D1")
        form = await nanobot.ask("GET", sent.headers["location"], headers=NAVIGATE)
        assert b'value="/c/abc?x=1"' in form.body
        assert "script-src" not in form.headers["content-security-policy"]
        assert "default-src 'none'" in form.headers["content-security-policy"]
        welcome = await sign_in(nanobot, KEY)
        assert (welcome.status, welcome.headers["location"]) == (303, "/c/x")
        cookie = cookie_of(welcome)
        assert (await nanobot.ask("GET", "/", headers=cookie | NAVIGATE)).status == 200
        assert (await nanobot.ask("GET", "/api/threads", headers=cookie)).status == 200
        gone = await nanobot.ask("POST", "/logout", headers=cookie | {"Origin": nanobot.url})
        assert "Max-Age=0" in gone.headers["set-cookie"]
        assert (await nanobot.ask("GET", "/api/threads", headers=cookie)).status == 401


@pytest.mark.parametrize(
    "place", ["//evil.example", "https://evil.example", "/\\evil.example", "x", "/a\r\nb: c"]
)
async def test_nobody_is_sent_elsewhere_after_signing_in(place: str, tmp_path: Path) -> None:
    async with served(tmp_path, auth=KEYS) as nanobot:
        body = urlencode({"secret": KEY, "next": place}).encode()
        welcome = await nanobot.ask("POST", "/login", body, FORM | {"Origin": nanobot.url})
        assert (welcome.status, welcome.headers["location"]) == (303, "/")


async def test_r11_a_cookie_counts_only_for_our_own_pages(tmp_path: Path) -> None:
    async with served(tmp_path, auth=KEYS) as nanobot:
        cookie = cookie_of(await sign_in(nanobot, KEY))
        own, port = {"Origin": nanobot.url}, nanobot.url.rpartition(":")[2]
        tries = {
            "own page": (own, 201),
            "no origin": ({}, 401),
            "same site, other port": ({"Origin": "http://127.0.0.1:1"}, 401),
            "other loopback name": ({"Origin": f"http://localhost:{port}"}, 401),
            "other scheme": ({"Origin": nanobot.url.replace("http", "https")}, 401),
            "foreign": ({"Origin": "https://evil.example"}, 403),
        }
        got = {
            name: (await nanobot.ask("POST", "/api/threads", {}, cookie | headers)).status
            for name, (headers, _) in tries.items()
        }
        assert got == {name: status for name, (_, status) in tries.items()}
        foreign = {"Origin": "https://evil.example", "Content-Type": "application/json"}
        assert (await nanobot.ask("POST", "/mcp", {}, cookie | foreign)).status == 401
        embedded = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}
        assert (await nanobot.ask("GET", "/api/threads", headers=cookie | embedded)).status == 401


async def test_a_page_cannot_sign_a_person_in_as_somebody_else(tmp_path: Path) -> None:
    async with served(tmp_path, auth=KEYS) as nanobot:
        for origin in ({}, {"Origin": "http://localhost:1"}):
            body = urlencode({"secret": KEY}).encode()
            answer = await nanobot.ask("POST", "/login", body, FORM | origin)
            assert answer.status == 403
            assert "set-cookie" not in answer.headers


async def test_ten_wrong_secrets_a_minute_are_enough(tmp_path: Path) -> None:
    async with served(tmp_path, auth=KEYS) as nanobot:
        assert [(await sign_in(nanobot, f"x{n}")).status for n in range(10)] == [403] * 10
        late = await sign_in(nanobot, KEY)
        assert late.status == 429
        assert 1 <= int(late.headers["retry-after"]) <= 60


async def test_a_session_ends_with_the_key_it_rests_on(tmp_path: Path) -> None:
    async with served(tmp_path, auth=KEYS) as nanobot:
        cookie = cookie_of(await sign_in(nanobot, KEY))
    async with served(tmp_path, auth=KEYS) as nanobot:
        assert (await nanobot.ask("GET", "/api/threads", headers=cookie)).status == 200
    other = AuthSettings(api_keys=(ApiKey(name="ann", sha256="0" * 64),))
    async with served(tmp_path, auth=other) as nanobot:
        assert (await nanobot.ask("GET", "/api/threads", headers=cookie)).status == 401


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    first = load_launch_secret(tmp_path)
    assert load_launch_secret(tmp_path).proof == first.proof
    (tmp_path / FILE).chmod(0o644)
    with pytest.raises(ConfigError, match="Others may read"):
        load_launch_secret(tmp_path)
    (tmp_path / FILE).chmod(0o600)
    (tmp_path / FILE).write_text("\n")
    with pytest.raises(ConfigError, match="no secret"):
        load_launch_secret(tmp_path)


REMOTE = AuthSettings(remote_headers=True)
ANN = {"X-Forwarded-User": "ann"}


async def test_r14_a_user_is_believed_of_a_trusted_proxy_only(tmp_path: Path) -> None:
    trusted = ServerSettings(trusted_proxies=("127.0.0.0/8",))
    stranger = ServerSettings(trusted_proxies=("10.0.0.0/8",))
    async with served(tmp_path / "a", settings=trusted, auth=REMOTE) as nanobot:
        thread = (await nanobot.ask("POST", "/api/threads", {}, ANN | {"Origin": nanobot.url})).json["id"]
        assert (await nanobot.ask("GET", f"/api/threads/{thread}", headers=ANN)).status == 200
        other = await nanobot.ask("GET", f"/api/threads/{thread}", headers={"X-Forwarded-User": "bob"})
        assert other.status == 404
        for nobody in ({}, {"X-Forwarded-User": " "}, {"X-Forwarded-Email": "a@x"}):
            assert (await nanobot.ask("GET", "/api/threads", headers=nobody)).status == 401
        page = ANN | {"Origin": "http://localhost:1"}  # the proxy adds its header to requests of any page
        assert (await nanobot.ask("POST", "/api/threads", {}, page)).status == 401
    async with served(tmp_path / "b", settings=stranger, auth=REMOTE) as nanobot:
        assert (await nanobot.ask("GET", "/api/threads", headers=ANN)).status == 401


async def test_a_program_behind_a_trusted_proxy_is_let_in_and_a_page_elsewhere_is_not(tmp_path: Path) -> None:
    trusted = ServerSettings(trusted_proxies=("127.0.0.0/8",))
    async with served(tmp_path, settings=trusted, auth=REMOTE) as nanobot:
        async with (
            httpx2.AsyncClient(headers=ANN) as http,
            streamable_http_client(f"{nanobot.url}/mcp", http_client=http) as (read, write, *_),
            ClientSession(read, write) as session,
        ):
            with anyio.fail_after(30):
                await session.initialize()
                tools = await session.list_tools()
        assert "chat-with-main" in [tool.name for tool in tools.tools]
        for site, status in (("same-origin", 201), ("none", 201), ("same-site", 401), ("cross-site", 403)):
            for mode in ({}, {"Sec-Fetch-Mode": "navigate"}):
                sent = ANN | mode | {"Sec-Fetch-Site": site}
                assert (await nanobot.ask("POST", "/api/threads", {}, sent)).status == status, (site, mode)
        for origin in ("null", "http://localhost:1"):
            assert (await nanobot.ask("POST", "/mcp", {}, ANN | {"Origin": origin})).status in (401, 403)
        assert (await nanobot.ask("POST", "/api/threads", {}, {"Sec-Fetch-Site": "none"})).status == 401


async def test_r14_where_we_are_is_believed_of_a_trusted_proxy_only(tmp_path: Path) -> None:
    forged = {"X-Forwarded-Host": "bot.example", "X-Forwarded-Proto": "https", "X-Original-URL": "/admin"}
    where = "/.well-known/oauth-protected-resource"
    for proxies, resource in (("127.0.0.1/32", "https://bot.example"), ("10.0.0.0/8", "")):
        settings = ServerSettings(trusted_proxies=(proxies,), allowed_hosts=("bot.example",))
        async with served(tmp_path, settings=settings, auth=KEYS) as nanobot:
            told = (await nanobot.ask("GET", where, headers=forged)).json["resource"]
            assert told == (resource or nanobot.url)
            if resource:
                evil = await nanobot.ask("GET", where, headers=forged | {"X-Forwarded-Host": "evil.example"})
                assert evil.status == 421


async def test_a_session_behind_a_tls_proxy_is_sent_over_tls_only(tmp_path: Path) -> None:
    settings = ServerSettings(trusted_proxies=("127.0.0.1/32",), public_url="https://bot.example")
    proxy = {"X-Forwarded-Host": "bot.example", "X-Forwarded-Proto": "https", "Origin": "https://bot.example"}
    async with served(tmp_path, settings=settings, auth=KEYS) as nanobot:
        welcome = await nanobot.ask("POST", "/login", urlencode({"secret": KEY}).encode(), FORM | proxy)
        assert "; Secure" in welcome.headers["set-cookie"]
