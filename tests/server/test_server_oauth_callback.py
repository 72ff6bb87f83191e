"""Coming back from a login to an MCP server, and the document about us."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.peers.oauth_server import OAuthPeer, answer_in
from tests.peers.programs import free_port
from tests.server.world import served
from tests.wire.http_peer import serving

from nanobot.config.model import McpServer, ServerSettings
from nanobot.upstream.oauth.client import OAuthClient
from nanobot.upstream.oauth.probe import find_challenge

pytestmark = pytest.mark.anyio


async def test_a_login_is_completed_in_the_browser_and_its_answer_counts_once(tmp_path: Path) -> None:
    peer, port = OAuthPeer(), free_port()
    home = f"http://localhost:{port}"
    server = McpServer(name="far", url="")
    async with (
        serving(peer) as url,
        served(tmp_path, port=port, settings=ServerSettings(public_url=home)) as one,
    ):
        client: OAuthClient = one.app.oauth
        authorizer = client.authorizer(server, url)
        challenge = await find_challenge(one.client, url)
        assert challenge is not None
        flow = await authorizer.begin_login(challenge)
        assert flow is not None
        there = await one.client.request("GET", flow.url)
        back = there.headers["Location"].removeprefix(home)
        assert back.startswith("/oauth/callback?")
        assert (await one.ask("HEAD", back)).status == 204
        page = await one.ask("GET", back)
        assert page.status == 200
        assert b"may close this window" in page.body
        assert page.headers["Referrer-Policy"] == "no-referrer"
        assert answer_in(back)["code"].encode() not in page.body
        again = await one.ask("GET", back)
        assert again.status == 400
        assert b"invalid state" in again.body
        assert await authorizer.bearer() in peer.access


async def test_nothing_of_an_answer_is_reflected(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        page = await one.ask("GET", "/oauth/callback?state=%3Cscript%3Ex&error=%3Cscript%3Ey")
        assert page.status == 400
        assert b"<script>" not in page.body
        assert (await one.ask("POST", "/oauth/callback")).status == 405


async def test_the_document_about_us_is_there_if_we_are_on_the_web(tmp_path: Path) -> None:
    path = "/.well-known/oauth-client/nanobot.json"
    async with served(tmp_path) as one:
        assert (await one.ask("GET", path)).status == 404
    settings = ServerSettings(public_url="https://bot.example")
    async with served(tmp_path, settings=settings) as one:
        document = (await one.ask("GET", path)).json
    assert document["client_id"] == "https://bot.example" + path
    assert document["redirect_uris"] == ["https://bot.example/oauth/callback"]
    assert document["token_endpoint_auth_method"] == "none"
