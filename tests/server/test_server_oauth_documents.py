"""MCP clients that are known by the address of a document, and addresses that make no client."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send
from tests.peers.identity_provider import query_of
from tests.server.test_server_oauth_proxy import REDIRECT, Browser, Memory, World, world
from tests.wire.http_peer import serving

from nanobot.addresses import PUBLIC_ONLY
from nanobot.http import open_http
from nanobot.server.auth.proxy import documents
from nanobot.server.auth.proxy.documents import Documents, check_address, documents_beside
from nanobot.server.auth.proxy.errors import OAuthError

pytestmark = pytest.mark.anyio


@dataclass
class Site:
    """A web site of clients. `/good` describes itself, changed by `more`; other paths do it wrongly."""

    url: str = ""
    more: dict[str, Any] = field(default_factory=dict[str, Any])
    asked: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        await self._answer(Request(scope, receive))(scope, receive, send)

    def _answer(self, request: Request) -> Response:
        about = {"client_id": f"{self.url}/good", "client_name": "Far <b>", "redirect_uris": [REDIRECT]}
        match request.url.path:
            case "/good":
                return JSONResponse(about | self.more)
            case "/moved":
                return RedirectResponse("/good")
            case "/long":
                return JSONResponse(about | {"client_id": f"{self.url}/long", "x": "x" * 70_000})
            case "/garbage":
                return Response("{")
            case "/other":
                return JSONResponse(about)
            case _:
                return Response(status_code=404)


@asynccontextmanager
async def described(tmp_path: Path, **more: Any) -> AsyncGenerator[tuple[World, Site]]:
    site = Site(more=more)
    async with serving(site) as url, world(tmp_path) as w:
        site.url = url.removesuffix("/mcp")
        yield w, site


async def test_a_client_is_known_by_its_document_and_needs_no_registration(tmp_path: Path) -> None:
    async with described(tmp_path) as (w, site):
        about = (await w.nanobot.ask("GET", "/.well-known/oauth-authorization-server")).json
        assert about["client_id_metadata_document_supported"] is True
        client = f"{site.url}/good"
        page = await Browser(w.nanobot).open(w.authorize_url(client))
        assert b"Far &lt;b&gt;" in page.body
        assert site.url.removeprefix("http://").encode() in page.body
        tokens = await w.tokens(client)
        assert await w.works(tokens["access_token"])
        renewed = (await w.renew(client, tokens["refresh_token"])).json
        assert await w.works(renewed["access_token"])
        assert site.asked == 1  # what was read is kept
        other = (await w.register())["client_id"]
        assert (await w.renew(other, renewed["refresh_token"])).json["error"] == "invalid_grant"


async def test_the_official_client_uses_its_document(tmp_path: Path) -> None:
    async with described(tmp_path) as (w, site):
        browser, came = Browser(w.nanobot), list[str]()

        async def show(url: str) -> None:
            at_provider = await browser.open(await browser.allow(await browser.open(url)))
            came.append((await browser.open(at_provider.headers["location"])).headers["location"])

        async def wait() -> AuthorizationCodeResult:
            answer = query_of(came[0])
            return AuthorizationCodeResult(code=answer["code"], state=answer["state"], iss=answer["iss"])

        metadata = OAuthClientMetadata.model_validate(
            {"redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none"}
        )
        memory = Memory()
        auth = OAuthClientProvider(f"{w.nanobot.url}/mcp", metadata, memory, show, wait)
        auth.context.client_metadata_url = f"{site.url}/good"  # its constructor wants https, also on loopback
        with anyio.fail_after(30):
            async with (
                httpx2.AsyncClient(auth=auth) as http,
                streamable_http_client(f"{w.nanobot.url}/mcp", http_client=http) as (read, write, *_),
                ClientSession(read, write) as session,
            ):
                await session.initialize()
        assert memory.client is not None
        assert memory.client.client_id == f"{site.url}/good"
        assert site.asked == 1


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/moved", "HTTP status 307"),
        ("/long", "too long|longer|more than"),
        ("/garbage", "cannot be read"),
        ("/other", "about another client"),
        ("/none", "HTTP status 404"),
        ("/", "https with a path"),
        ("/a/../good", "https with a path"),
        ("/good#x", "https with a path"),
    ],
)
async def test_what_is_no_document_of_that_address_is_no_client(path: str, said: str, tmp_path: Path) -> None:
    async with described(tmp_path) as (w, site):
        client = site.url + path
        page = await Browser(w.nanobot).open(w.authorize_url(client))
        assert page.status == 400
        assert "location" not in page.headers
        assert any(one in page.body.decode() for one in said.split("|")), page.body
        refused = await w.redeem(client, "code")
        assert (refused.status, refused.json["error"]) == (401, "invalid_client")
        assert site.asked <= 1  # it is not asked again at once


@pytest.mark.parametrize(
    "more",
    [
        {"redirect_uris": ["javascript:alert(1)"]},
        {"redirect_uris": ["http://far.example/back"]},
        {"redirect_uris": []},
        {"token_endpoint_auth_method": "client_secret_post"},
        {"token_endpoint_auth_method": "private_key_jwt"},
        {"response_types": ["token"]},
    ],
    ids=json.dumps,
)
async def test_a_document_is_judged_as_a_registration_is(more: dict[str, Any], tmp_path: Path) -> None:
    async with described(tmp_path, **more) as (w, site):
        page = await Browser(w.nanobot).open(w.authorize_url(f"{site.url}/good"))
        assert page.status == 400


async def test_codes_go_to_the_addresses_of_the_document_alone(tmp_path: Path) -> None:
    async with described(tmp_path) as (w, site):
        url = w.authorize_url(f"{site.url}/good", redirect_uri="http://localhost:1/else")
        page = await Browser(w.nanobot).open(url)
        assert (page.status, b"foreign address" in page.body) == (400, True)


async def test_a_document_is_not_fetched_from_this_machine_for_strangers() -> None:
    site = Site()
    assert documents_beside("https://login.example.com/authorize") == PUBLIC_ONLY
    async with serving(site) as url, open_http() as http:
        find = Documents(http.guarded(PUBLIC_ONLY)).find
        for address in (url, url.replace("127.0.0.1", "localhost")):
            with pytest.raises(OAuthError, match="private or reserved"):
                await find(address)
    assert site.asked == 0


@pytest.mark.parametrize("address", ["http://far.example/c", "https://u@far.example/c", "https:///c"])
def test_addresses_that_name_nobody(address: str) -> None:
    with pytest.raises(OAuthError):
        check_address(address)


async def test_only_so_many_documents_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MOST_KEPT", 2)
    site = Site()
    async with serving(site) as url, open_http() as http:
        kept = Documents(http)
        for number in (1, 2, 3, 3, 1):
            with pytest.raises(OAuthError):
                await kept.find(f"{url}/{number}")
    assert site.asked == 4
