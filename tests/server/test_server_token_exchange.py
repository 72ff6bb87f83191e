"""Callers' tokens exchanged for ones that are meant for a server: once per caller, and never passed on."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from tests.server.test_server_auth_keys import ANN, BOB, KEYS, by
from tests.server.test_server_personal_headers import relaying, session, work

from nanobot.aio import task_group
from nanobot.config.model import AuthSettings
from nanobot.http import open_http
from nanobot.upstream.oauth.exchange import TokenExchange
from nanobot.upstream.oauth.failures import AuthorizationFailed

pytestmark = pytest.mark.anyio


NAMES = {ANN: "ann", BOB: "bob"}


@dataclass
class Endpoint:
    """A token endpoint. `status` and `answer` are what it says next; `forms` what it was asked."""

    url: str = ""
    status: int = 200
    answer: dict[str, Any] | None = None
    forms: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    authorizations: list[str] = field(default_factory=list[str])

    def take(self, form: dict[str, str]) -> dict[str, Any]:
        self.forms.append(form)
        if self.answer is not None:
            return self.answer
        return {
            "access_token": f"of-{NAMES[form['subject_token']]}-{len(self.forms)}",
            "token_type": "Bearer",
        }


@contextmanager
def endpoint() -> Generator[Endpoint]:
    found = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["content-length"])).decode()
            found.authorizations.append(self.headers.get("authorization", ""))
            body = json.dumps(found.take({key: values[0] for key, values in parse_qs(text).items()})).encode()
            self.send_response(found.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_address[1]}/token"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


def auth(tokens: Endpoint, **more: Any) -> AuthSettings:
    return AuthSettings(api_keys=KEYS.api_keys, oauth_token_url=tokens.url, **more)


async def test_each_caller_is_exchanged_once_however_many_calls_there_are(tmp_path: Path) -> None:
    with endpoint() as tokens:
        async with relaying(tmp_path, "", auth=auth(tokens)) as (nanobot, peer):
            ann = await session(nanobot, **by(ANN)) | by(ANN)
            bob = await session(nanobot, **by(BOB)) | by(BOB)
            said: list[tuple[str, str]] = []

            async def ask(headers: dict[str, str], id: int) -> None:
                said.append((headers["Authorization"], await work(nanobot, headers, id)))

            async with task_group() as group:
                for id in range(10, 30):
                    group.start_soon(ask, ann if id % 2 else bob, id)
            url = peer.asked[0].headers["host"]
            assert len(said) == 20
            for sent, got in said:
                assert got.startswith(f"Bearer of-{NAMES[sent.removeprefix('Bearer ')]}-")
            of_ann = [form for form in tokens.forms if form["subject_token"] == ANN]
            servers = {form["resource"] for form in of_ann}
            assert len(of_ann) == len(servers)
            assert any(url in resource for resource in servers)
            assert of_ann[0]["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
            assert of_ann[0]["subject_token_type"] == "urn:obot:token-type:api-key"
            assert of_ann[0]["requested_token_type"] == "urn:ietf:params:oauth:token-type:access_token"
            assert set(tokens.authorizations) == {""}
            assert not any(ANN in json.dumps(asked.headers) for asked in peer.asked)


async def test_the_exchanged_token_replaces_a_configured_one_and_we_say_who_we_are(tmp_path: Path) -> None:
    with endpoint() as tokens:
        settings = auth(
            tokens, oauth_client_id="we", oauth_client_secret="secret", oauth_authorize_url=tokens.url
        )
        definition = "headers: {authorization: Bearer configured}"
        async with relaying(tmp_path, definition, auth=settings) as (nanobot, peer):
            ann = await session(nanobot, **by(ANN)) | by(ANN)
            assert (await work(nanobot, ann)).startswith("Bearer of-ann-")
            assert all(one.startswith("Basic ") for one in tokens.authorizations)
            for asked in peer.asked:
                assert list(map(str.lower, asked.headers)).count("authorization") <= 1


async def test_a_refusal_leaves_the_request_without_a_token(tmp_path: Path) -> None:
    with endpoint() as tokens:
        tokens.status, tokens.answer = 400, {"error": "invalid_request"}
        async with relaying(tmp_path, "", auth=auth(tokens)) as (nanobot, _):
            ann = await session(nanobot, **by(ANN)) | by(ANN)
            assert await work(nanobot, ann) == ""


@pytest.mark.parametrize("answer", [{}, {"access_token": "a\nb"}, {"access_token": "x", "token_type": "mac"}])
async def test_success_without_a_token_is_an_error(answer: dict[str, Any], tmp_path: Path) -> None:
    with endpoint() as tokens:
        tokens.answer = answer
        async with relaying(tmp_path, "", auth=auth(tokens)) as (nanobot, peer):
            ann = await session(nanobot, **by(ANN)) | by(ANN)
            said = await work(nanobot, ann)
            assert "could not be looked up: MCP server" in said
            assert "its authorization server" in said
            assert not any(asked.method == "tools/call" for asked in peer.asked)


async def test_an_endpoint_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with endpoint() as gone:
        pass
    async with relaying(tmp_path, "", auth=auth(gone)) as (nanobot, peer):
        ann = await session(nanobot, **by(ANN)) | by(ANN)
        said = await work(nanobot, ann)
        assert "far" in said
        assert not any(asked.method == "tools/call" for asked in peer.asked)


async def test_those_who_wait_for_a_dead_endpoint_wait_once_together() -> None:
    with endpoint() as tokens:
        tokens.status, tokens.answer = 503, {}
        async with open_http() as http, task_group() as group:
            exchange = TokenExchange(http, tokens.url)
            told: list[str] = []

            async def ask() -> None:
                try:
                    await exchange.token("subject", "https://server.example")
                except AuthorizationFailed as e:
                    told.append(str(e))

            for _ in range(20):
                group.start_soon(ask)
        assert len(told) == 20
        assert "503" in told[0]
        assert len(tokens.forms) == 1
