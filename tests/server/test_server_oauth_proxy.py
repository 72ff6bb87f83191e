"""Being an OAuth server for MCP clients: the whole way, and every shortcut that must not exist."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import anyio
import httpx2
import pytest
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from tests.peers.identity_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    IdentityProvider,
    identity_provider,
    query_of,
)
from tests.server.world import Answer, Served, served

from nanobot.aio import task_group
from nanobot.config.model import AuthSettings
from nanobot.server.auth.proxy.clients import MOST_CLIENTS, UNUSED_S
from nanobot.server.auth.proxy.grants import challenge_of
from nanobot.store.credentials import Credential

pytestmark = pytest.mark.anyio

REDIRECT = "http://localhost:9999/done"
VERIFIER = "v" * 50
NAVIGATE = {"Sec-Fetch-Mode": "navigate", "Accept": "text/html"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def at(provider: IdentityProvider) -> AuthSettings:
    return AuthSettings(
        oauth_client_id=CLIENT_ID,
        oauth_client_secret=CLIENT_SECRET,
        oauth_authorize_url=provider.url,
        oauth_scopes=("profile", "email"),
    )


@dataclass
class Browser:
    """Follows a person through the pages, keeping cookies as a browser does."""

    nanobot: Served
    cookies: dict[str, str] = field(default_factory=dict)

    async def go(self, method: str, url: str, form: dict[str, str] | None = None, **headers: str) -> Answer:
        sent = NAVIGATE | headers
        if url.startswith(self.nanobot.url) and self.cookies:
            sent["Cookie"] = "; ".join(f"{k}={v}" for k, v in self.cookies.items())
        if form is not None:
            sent |= FORM | {"Origin": headers.get("Origin", self.nanobot.url)}
        body = None if form is None else urlencode(form).encode()
        got = await self.nanobot.client.request(method, url, headers=sent, body=body)
        for value in got.headers.getall("set-cookie", []):  # type: ignore[attr-defined]
            name, _, content = value.partition(";")[0].partition("=")
            self.cookies[name] = content
        return Answer(got.status, got.headers, got.body)

    async def open(self, url: str) -> Answer:
        return await self.go("GET", url)

    async def allow(self, page: Answer, decision: str = "allow") -> str:
        """Press a button on the consent page; where the browser goes then."""
        found = re.search(rb'name="request" value="([^"]+)"', page.body)
        assert found, page.body
        form = {"request": found[1].decode(), "decision": decision}
        answer = await self.go("POST", f"{self.nanobot.url}/authorize", form)
        onward = re.search(rb'content="0;url=([^"]+)"', answer.body)
        assert onward, answer.body
        return unescape(onward[1].decode())


@dataclass
class World:
    nanobot: Served
    provider: IdentityProvider

    async def register(self, **more: Any) -> dict[str, Any]:
        wish = {
            "redirect_uris": [REDIRECT],
            "client_name": "Test <b>",
            "token_endpoint_auth_method": "none",
        } | more
        answer = await self.nanobot.ask("POST", "/register", wish)
        assert answer.status == 201, answer.body
        return answer.json

    def authorize_url(self, client: str, **more: str | None) -> str:
        query = {
            "response_type": "code",
            "client_id": client,
            "redirect_uri": REDIRECT,
            "code_challenge": challenge_of(VERIFIER),
            "code_challenge_method": "S256",
            "state": "st",
        } | more
        kept = {name: value for name, value in query.items() if value is not None}
        return f"{self.nanobot.url}/authorize?{urlencode(kept)}"

    async def code(self, client: str, browser: Browser | None = None) -> str:
        """All the way to a code."""
        browser = browser or Browser(self.nanobot)
        page = await browser.open(self.authorize_url(client))
        at_provider = await browser.open(await browser.allow(page))
        back = await browser.open(at_provider.headers["location"])
        assert back.status == 303, back.body
        answer = query_of(back.headers["location"])
        assert back.headers["location"].startswith(REDIRECT + "?")
        assert (answer["state"], answer["iss"]) == ("st", self.nanobot.url)
        return answer["code"]

    async def post(self, path: str, headers: dict[str, str] | None = None, **form: str) -> Answer:
        return await self.nanobot.ask("POST", path, urlencode(form).encode(), FORM | (headers or {}))

    async def redeem(self, client: str, code: str, **more: str) -> Answer:
        form = {
            "grant_type": "authorization_code",
            "client_id": client,
            "code": code,
            "redirect_uri": REDIRECT,
            "code_verifier": VERIFIER,
        }
        return await self.post("/token", **(form | more))

    async def renew(self, client: str, token: str) -> Answer:
        form = {"grant_type": "refresh_token", "client_id": client, "refresh_token": token}
        return await self.post("/token", **form)

    async def tokens(self, client: str) -> dict[str, Any]:
        answer = await self.redeem(client, await self.code(client))
        assert answer.status == 200, answer.body
        return answer.json

    async def works(self, token: str) -> bool:
        answer = await self.nanobot.ask("GET", "/api/threads", headers={"Authorization": f"Bearer {token}"})
        return answer.status == 200


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with identity_provider() as provider, served(tmp_path, auth=at(provider)) as nanobot:
        yield World(nanobot, provider)


async def test_the_official_client_finds_its_way_by_itself(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        browser = Browser(w.nanobot)
        came: list[str] = []

        async def show(url: str) -> None:
            at_provider = await browser.open(await browser.allow(await browser.open(url)))
            came.append((await browser.open(at_provider.headers["location"])).headers["location"])

        async def wait() -> Any:
            answer = query_of(came[0])
            return AuthorizationCodeResult(code=answer["code"], state=answer["state"], iss=answer["iss"])

        auth = OAuthClientProvider(
            server_url=f"{w.nanobot.url}/mcp",
            client_metadata=OAuthClientMetadata(
                client_name="sdk", redirect_uris=[REDIRECT], token_endpoint_auth_method="none"
            ),
            storage=Memory(),
            redirect_handler=show,
            callback_handler=wait,
        )
        with anyio.fail_after(30):
            async with (
                httpx2.AsyncClient(auth=auth) as http,
                streamable_http_client(f"{w.nanobot.url}/mcp", http_client=http) as (read, write, *_),
                ClientSession(read, write) as session,
            ):
                await session.initialize()
                tools = await session.list_tools()
        assert "chat-with-main" in [tool.name for tool in tools.tools]


class Memory(TokenStorage):
    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def test_the_metadata_says_what_is_so(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        url = w.nanobot.url
        resource = (await w.nanobot.ask("GET", "/.well-known/oauth-protected-resource/mcp")).json
        assert (resource["resource"], resource["authorization_servers"]) == (f"{url}/mcp", [url])
        server = (await w.nanobot.ask("GET", "/.well-known/oauth-authorization-server")).json
        assert server["issuer"] == url
        assert server["code_challenge_methods_supported"] == ["S256"]
        refused = await w.nanobot.ask("POST", "/mcp", {})
        assert 'scope="profile email"' in refused.headers["www-authenticate"]


async def test_a_person_uses_the_page_and_signs_out(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        browser, url = Browser(w.nanobot), w.nanobot.url
        sent = await browser.open(f"{url}/c/abc")
        to_provider = await browser.open(url + sent.headers["location"])
        back = await browser.open((await browser.open(to_provider.headers["location"])).headers["location"])
        assert (back.status, back.headers["location"]) == (303, "/c/abc")
        assert (await browser.open(f"{url}/c/abc")).status == 200
        assert (await browser.open(f"{url}/api/threads")).status == 200
        stolen = Browser(w.nanobot, dict(browser.cookies))
        await browser.go("POST", f"{url}/logout", {})
        assert (await stolen.open(f"{url}/api/threads")).status == 401


async def test_consent_names_the_client_and_is_asked_each_time(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        client = (await w.register())["client_id"]
        browser = Browser(w.nanobot)
        await w.code(client, browser)
        page = await browser.open(w.authorize_url(client))
        assert b"Test &lt;b&gt;" in page.body
        assert b"localhost" in page.body
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        refused = query_of(await browser.allow(page, "deny"))
        assert (refused["error"], refused["state"], refused["iss"]) == ("access_denied", "st", w.nanobot.url)


BAD_REQUESTS: dict[str, tuple[dict[str, str | None], str]] = {
    "no challenge": ({"code_challenge": None}, "invalid_request"),
    "no method": ({"code_challenge_method": None}, "invalid_request"),
    "plain": ({"code_challenge_method": "plain", "code_challenge": VERIFIER}, "invalid_request"),
    "token": ({"response_type": "token"}, "unsupported_response_type"),
    "other resource": ({"resource": "https://evil.example/mcp"}, "invalid_target"),
}


async def test_a_request_that_is_not_safe_is_explained_and_no_redirect_before_consent(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        anywhere = "https://anywhere.example/x"  # anybody may register any address
        client = (await w.register(redirect_uris=[anywhere]))["client_id"]
        for name, (change, error) in BAD_REQUESTS.items():
            url = w.authorize_url(client, redirect_uri=anywhere, **change)
            answer = await Browser(w.nanobot).open(url)
            assert answer.status == 400, name
            assert "location" not in answer.headers, name
            assert b"http-equiv" not in answer.body, name
            assert b"<b>anywhere.example</b>" in answer.body, name
            link = re.search(rb'href="(https://anywhere[^"]+)"', answer.body)
            assert link, name
            told = query_of(unescape(link[1].decode()))
            assert (told["error"], told["state"], told["iss"]) == (error, "st", w.nanobot.url), name


@pytest.mark.parametrize(
    "uri",
    [
        "http://localhost:9999/done/",
        "http://localhost:9999/done?x=1",
        "http://localhost:9998/done",
        "https://evil.example/",
        "",
    ],
)
async def test_a_foreign_redirect_is_shown_and_never_followed(uri: str, tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        client = (await w.register())["client_id"]
        for url in (w.authorize_url(client, redirect_uri=uri), w.authorize_url("nbc_unknown")):
            answer = await Browser(w.nanobot).open(url)
            assert answer.status == 400
            assert "location" not in answer.headers
        code = await w.code(client)
        wrong = await w.redeem(client, code, redirect_uri=uri)
        assert (wrong.status, wrong.json["error"]) == (400, "invalid_grant")


async def test_the_verifier_is_mandatory_and_must_be_the_right_one(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        client = (await w.register())["client_id"]
        for verifier, error in (("", "invalid_request"), ("w" * 50, "invalid_grant")):
            answer = await w.redeem(client, await w.code(client), code_verifier=verifier)
            assert (answer.status, answer.json["error"]) == (400, error)
        plain = await w.redeem(client, await w.code(client), code_verifier=challenge_of(VERIFIER))
        assert plain.status == 400


async def test_r20_a_code_works_once_for_its_client_and_a_second_use_takes_the_grant_back(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as w:
        client, other = (await w.register())["client_id"], (await w.register())["client_id"]
        code = await w.code(client)
        assert (await w.redeem(other, code)).json["error"] == "invalid_grant"
        tokens = (await w.redeem(client, code)).json
        assert await w.works(tokens["access_token"])
        again = await w.redeem(client, code)
        assert again.json["error"] == "invalid_grant"
        assert not await w.works(tokens["access_token"])
        assert (await w.renew(client, tokens["refresh_token"])).status == 400


async def test_refresh_tokens_rotate_and_a_second_use_takes_the_grant_back(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        client, other = (await w.register())["client_id"], (await w.register())["client_id"]
        first = await w.tokens(client)
        assert (await w.renew(other, first["refresh_token"])).status == 400
        second = (await w.renew(client, first["refresh_token"])).json
        assert await w.works(second["access_token"])
        assert second["refresh_token"] != first["refresh_token"]
        assert (await w.renew(client, first["refresh_token"])).json["error"] == "invalid_grant"
        assert not await w.works(second["access_token"])
        assert (await w.renew(client, second["refresh_token"])).status == 400


async def test_a_client_can_take_back_its_own_tokens_only(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        client, other = (await w.register())["client_id"], (await w.register())["client_id"]
        tokens = await w.tokens(client)
        for kind in ("access_token", "refresh_token"):
            foreign = await w.post("/revoke", client_id=other, token=tokens[kind])
            assert foreign.json["error"] == "unauthorized_client"
        nobody = await w.post("/revoke", client_id="nbc_x", token=tokens["access_token"])
        assert (nobody.status, nobody.json["error"]) == (401, "invalid_client")
        assert await w.works(tokens["access_token"])
        assert (await w.post("/revoke", client_id=client, token="nbt_unknown")).status == 200
        assert (await w.post("/revoke", client_id=client, token=tokens["refresh_token"])).status == 200
        assert not await w.works(tokens["access_token"])


async def test_a_confidential_client_proves_itself_in_the_way_it_registered(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        client = await w.register(token_endpoint_auth_method="client_secret_post")
        id, secret = client["client_id"], client["client_secret"]
        code = await w.code(id)
        for wrong in ({}, {"client_secret": "nbs_wrong"}):
            answer = await w.redeem(id, code, **wrong)
            assert (answer.status, answer.json["error"]) == (401, "invalid_client")
        basic = {"Authorization": "Basic " + base64.b64encode(f"{id}:{secret}".encode()).decode()}
        other_way = await w.post("/token", basic, grant_type="authorization_code", code=code)
        assert other_way.status == 401
        assert (await w.redeem(id, code, client_secret=secret)).status == 200


async def test_r20_a_sign_in_belongs_to_the_browser_that_began_it(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        client = (await w.register())["client_id"]
        attacker, victim = Browser(w.nanobot), Browser(w.nanobot)
        page = await attacker.open(w.authorize_url(client))
        await victim.open(w.authorize_url(client))
        found = re.search(rb'name="request" value="([^"]+)"', page.body)
        assert found
        form = {"request": found[1].decode(), "decision": "allow"}
        # The attacker's question, answered by the victim's browser; and from another page.
        assert (await victim.go("POST", f"{w.nanobot.url}/authorize", form)).status == 400
        lure = await attacker.go("POST", f"{w.nanobot.url}/authorize", form, Origin="http://localhost:1")
        assert lure.status == 400
        onward = await attacker.allow(page)
        at_provider = await attacker.open(onward)
        back = at_provider.headers["location"]
        # The attacker's answer of the provider, opened in the victim's browser.
        lost = await victim.open(back)
        assert (lost.status, "location" in lost.headers) == (400, False)
        assert (await attacker.open(back)).status == 303
        assert (await attacker.open(back)).status == 400  # and it works once


async def test_an_answer_of_another_provider_is_not_redeemed(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        client = (await w.register())["client_id"]
        browser = Browser(w.nanobot)
        onward = await browser.allow(await browser.open(w.authorize_url(client)))
        back = (await browser.open(onward)).headers["location"]
        mixed = back.replace(urlencode({"iss": w.provider.url}), "iss=https%3A%2F%2Fevil.example")
        answer = await browser.open(mixed)
        assert query_of(answer.headers["location"])["error"] == "access_denied"
        assert w.provider.forms == []


async def test_the_provider_is_asked_with_proof_of_our_own(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        client = (await w.register())["client_id"]
        await w.code(client)
        (form,) = w.provider.forms
        assert form["redirect_uri"] == f"{w.nanobot.url}/callback"
        assert len(form["code_verifier"]) >= 43
        assert form["code_verifier"] != VERIFIER


@pytest.mark.parametrize("user", [{}, {"sub": ""}, {"id": None, "email": " "}, {"sub": "a\nb"}])
async def test_somebody_without_a_name_gets_nothing(user: dict[str, Any], tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.provider.user = user
        client = (await w.register())["client_id"]
        browser = Browser(w.nanobot)
        onward = await browser.allow(await browser.open(w.authorize_url(client)))
        answer = await browser.open((await browser.open(onward)).headers["location"])
        assert query_of(answer.headers["location"])["error"] == "access_denied"


async def test_when_the_provider_lets_go_of_a_person_so_do_we(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.provider.expires_in = 0  # so it is due for renewal at once
        client = (await w.register())["client_id"]
        tokens = await w.tokens(client)
        assert await w.works(tokens["access_token"])
        assert [form["grant_type"] for form in w.provider.forms] == ["authorization_code", "refresh_token"]
        w.provider.refuses_refresh = True
        assert not await w.works(tokens["access_token"])
        assert (await w.renew(client, tokens["refresh_token"])).status == 400


async def test_a_wrong_secret_of_ours_ends_no_grant(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.provider.expires_in = 0
        client = (await w.register())["client_id"]
        tokens = await w.tokens(client)
        asked = {"Authorization": f"Bearer {tokens['access_token']}"}
        w.provider.client_secret = "another"
        refused = await w.nanobot.ask("GET", "/api/threads", headers=asked)
        assert refused.status == 503
        assert b"invalid_client" in refused.body
        browser = Browser(w.nanobot)
        onward = await browser.allow(await browser.open(w.authorize_url(client)))
        back = await browser.open((await browser.open(onward)).headers["location"])
        assert query_of(back.headers["location"])["error"] == "temporarily_unavailable"
        w.provider.client_secret = CLIENT_SECRET
        assert await w.works(tokens["access_token"])
        assert (await w.renew(client, tokens["refresh_token"])).status == 200


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ((400, {"error": "invalid_request"}), 503),
        ((400, ["no error"]), 503),
        ((403, {"error": "CANARY <b>"}), 503),
        ((429, {}), 503),
        ((500, {"error": "invalid_grant"}), 503),
        ((200, {"error": "bad_refresh_token"}), 401),
    ],
)
async def test_only_a_clear_word_of_the_provider_ends_a_grant(
    answer: tuple[int, Any], status: int, tmp_path: Path
) -> None:
    async with world(tmp_path) as w:
        w.provider.expires_in = 0
        tokens = await w.tokens((await w.register())["client_id"])
        asked = {"Authorization": f"Bearer {tokens['access_token']}"}
        w.provider.token_answer = answer
        refused = await w.nanobot.ask("GET", "/api/threads", headers=asked)
        assert refused.status == status
        assert b"CANARY" not in refused.body
        w.provider.token_answer = None
        assert await w.works(tokens["access_token"])


async def test_many_requests_at_once_renew_the_providers_token_once(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.provider.expires_in = 0
        client = (await w.register())["client_id"]
        tokens = await w.tokens(client)
        w.provider.expires_in = 3600
        async with task_group() as group:
            for _ in range(20):
                group.start_soon(w.works, tokens["access_token"])
        assert len(w.provider.forms) == 2


async def test_a_short_lived_token_of_the_provider_is_not_renewed_at_every_request(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        for lasts_s in (300, 60):
            w.provider.expires_in = lasts_s
            w.provider.forms.clear()
            tokens = await w.tokens((await w.register())["client_id"])
            for _ in range(5):
                assert await w.works(tokens["access_token"])
            assert [form["grant_type"] for form in w.provider.forms] == ["authorization_code"]


BAD_REDIRECTS = [
    "http://evil.example/x",
    "javascript:alert(1)",
    "data:text/html,x",
    "file:///etc/passwd",
    "https://a@evil.example/",
    "https://ok.example/#x",
    "https://ok.example/ x",
    "//evil.example",
    "",
    "https://ok.example/" + "x" * 3000,
    "jar:https://ok.example/x",
    "resource://x",
    "moz-extension://x",
    "ms-msdt:/id",
    "search-ms:query",
    "intent://x",
    "localhost:1/cb",
    ".app:/cb",
    "app.:/cb",
    "http://localhost:9/cb?code=1",
    "https://ok.example/cb?x=1&state=",
    "https://ok.example/cb?%69ss=x",
    "com.example.app:/cb?error=x",
]


async def test_registrations_that_could_leak_codes_are_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        for uri in BAD_REDIRECTS:
            answer = await w.nanobot.ask("POST", "/register", {"redirect_uris": [uri]})
            assert (answer.status, answer.json["error"]) == (400, "invalid_redirect_uri"), uri
        for wish in (
            {"redirect_uris": []},
            {"redirect_uris": "x"},
            {},
            {"redirect_uris": [REDIRECT], "token_endpoint_auth_method": "private_key_jwt"},
            {"redirect_uris": [REDIRECT], "grant_types": ["implicit"]},
        ):
            assert (await w.nanobot.ask("POST", "/register", wish)).status == 400, wish
        for uri in (
            "cursor://anysphere/cb",
            "com.example.app:/cb",
            "http://[::1]:1/x",
            "https://ok.example/cb?x=1",
        ):
            await w.register(redirect_uris=[uri])


async def test_registrations_that_nobody_uses_give_way_to_new_ones(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        used, first = (await w.register())["client_id"], (await w.register())["client_id"]
        tokens = await w.tokens(used)
        credentials = w.nanobot.app.store.credentials
        later = int(time.time()) + UNUSED_S + 3600
        await credentials.put(
            *(Credential(kind="oauth-client", id=f"nbc_{n}", expires=later) for n in range(MOST_CLIENTS - 2))
        )
        newest = (await w.register())["client_id"]
        gone = await Browser(w.nanobot).open(w.authorize_url(first))
        assert (gone.status, b"not registered" in gone.body) == (400, True)
        assert await credentials.find("oauth-client", "nbc_0")
        await w.code(newest)
        assert (await w.renew(used, tokens["refresh_token"])).status == 200
        assert (await w.tokens(used))["access_token"]


async def test_repeated_parameters_and_too_many_requests_are_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        client = (await w.register())["client_id"]
        twice = await Browser(w.nanobot).open(w.authorize_url(client) + "&client_id=other")
        assert twice.status == 400
        statuses = [(await w.post("/token", client_id="x")).status for _ in range(60)]
        assert statuses[0] == 401
        assert statuses[-1] == 429
        assert (await w.nanobot.ask("GET", "/.well-known/oauth-authorization-server")).status == 200


async def test_r21_nothing_secret_is_kept_readable_or_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with world(tmp_path) as w:
        client = (await w.register())["client_id"]
        code = await w.code(client)
        tokens = (await w.redeem(client, code)).json
        await w.renew(client, tokens["refresh_token"])
        await w.renew(client, tokens["refresh_token"])
        secrets = [b"CANARY", code.encode(), *(tokens[k].encode() for k in ("access_token", "refresh_token"))]
        for file in tmp_path.rglob("nanobot.db*"):
            content = file.read_bytes()
            assert not [s for s in secrets if s in content], file
    logged = "".join(f"{r.getMessage()}{r.__dict__}" for r in caplog.records if r.name.startswith("nanobot"))
    assert not [s for s in secrets if s.decode() in logged]
    assert urlsplit(w.nanobot.url).hostname == "127.0.0.1"
