"""Coming back from a login to an MCP server, and the document about us."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from tests.peers.oauth_server import OAuthPeer, answer_in
from tests.server.world import configured, served
from tests.wire.http_peer import serving

from nanobot.aio import task_group
from nanobot.app import App, open_app
from nanobot.config.model import McpServer, ServerSettings
from nanobot.http import Http, open_http
from nanobot.server.listener import open_listener
from nanobot.server.serve import serve_on
from nanobot.testing.model_server import model_server
from nanobot.upstream.oauth.probe import find_challenge

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def waiting(home: Path) -> AsyncGenerator[tuple[App, int, Http]]:
    """A nanobot that knows where it listens, as `nanobot run` starts it."""
    listener = open_listener("127.0.0.1", 0)
    async with (
        model_server() as model,
        open_http() as http,
        open_app(configured(home, model, None, ()), own_port=listener.port) as app,
        task_group() as group,
    ):
        up = anyio.Event()
        group.start_soon(partial(serve_on, listener, app, ready=lambda _: up.set()))
        await up.wait()
        yield app, listener.port, http
        group.cancel_scope.cancel()


async def test_a_login_is_completed_in_the_browser_and_its_answer_counts_once(tmp_path: Path) -> None:
    peer = OAuthPeer()
    async with serving(peer) as url, waiting(tmp_path) as (app, port, http):
        authorizer = app.oauth.authorizer(McpServer(name="far", url=url), url)
        challenge = await find_challenge(http, url)
        assert challenge is not None
        flow = await authorizer.begin_login(challenge)
        assert flow is not None
        back = (await http.request("GET", flow.url)).headers["Location"]
        assert back.startswith(f"http://localhost:{port}/oauth/callback?")
        assert (await http.request("HEAD", back)).status == 204
        page = await http.request("GET", back)
        assert page.status == 200
        assert b"may close this window" in page.body
        assert page.headers["Referrer-Policy"] == "no-referrer"
        assert answer_in(back)["code"].encode() not in page.body
        again = await http.request("GET", back)
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
