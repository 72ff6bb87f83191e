"""What strangers write into headers, addresses and metadata."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send
from tests.wire.http_peer import serving

from nanobot.http import open_http
from nanobot.upstream.oauth.addresses import checked, covers
from nanobot.upstream.oauth.documents import MAX_DOCUMENT, fetch_document
from nanobot.upstream.oauth.failures import AuthorizationFailed
from nanobot.upstream.oauth.token_endpoint import _token
from nanobot.wire.challenge import Challenge, read_challenge

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("header", "challenge"),
    [
        ("Bearer", Challenge(status=401)),
        ('bearer realm="x"', Challenge(status=401)),
        (
            'Basic realm="a Bearer b", Bearer scope="read write", resource_metadata="https://x/y",error=no',
            Challenge(status=401, scopes=("read", "write"), metadata_url="https://x/y", error="no"),
        ),
        ('Bearer error = "a\\"b" , scope=one', Challenge(status=401, error='a"b', scopes=("one",))),
        ('Bearer scope="a", DPoP algs="x"', Challenge(status=401, scopes=("a",))),
        ("Negotiate", Challenge(status=401)),
        ("Bearer " + "x" * 10_000, Challenge(status=401)),
    ],
)
def test_a_challenge_is_read(header: str, challenge: Challenge) -> None:
    assert read_challenge(401, {"WWW-Authenticate": header}) == challenge


def test_the_challenge_that_we_know_is_found_among_several_headers() -> None:
    headers = CIMultiDict([("WWW-Authenticate", "Basic"), ("www-authenticate", 'Bearer scope="a"')])
    assert read_challenge(401, headers).scopes == ("a",)


@given(st.text(max_size=200))
def test_no_header_breaks_the_reading(text: str) -> None:
    read_challenge(401, {"WWW-Authenticate": "Bearer " + text})


@pytest.mark.parametrize(
    "url", ["https://as.example/x", "http://localhost:1/", "http://127.0.0.1", "http://[::1]:2"]
)
def test_an_address_that_can_be_used(url: str) -> None:
    assert checked(url, "it") == url


@pytest.mark.parametrize(
    "url",
    [
        "http://as.example", "file:///etc/passwd", "javascript:alert(1)", "https://", "https://u:p@as.example",
        "https://as.example/#x", "https://as.example:port", "https://a b", "http://localhost.evil.example",
        "//as.example", "", None, 7, "https://as.example/\n", "http://10.0.0.1",
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_used(url: Any) -> None:
    with pytest.raises(AuthorizationFailed):
        checked(url, "it")


@pytest.mark.parametrize(
    ("resource", "url", "does"),
    [
        ("https://x/mcp", "https://x/mcp", True),
        ("https://x/mcp/", "https://x/mcp", True),
        ("https://x", "https://x/mcp", True),
        ("https://x:443/", "https://x/mcp", True),
        ("https://x/m", "https://x/mcp", False),
        ("https://x/mcp/deeper", "https://x/mcp", False),
        ("https://y", "https://x/mcp", False),
        ("http://x", "https://x/mcp", False),
        ("https://x?a", "https://x/mcp", False),
    ],
)
def test_a_resource_covers_its_children(resource: str, url: str, does: bool) -> None:
    assert covers(resource, url) is does


async def fetch(answer: Response) -> Any:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(scope, receive, send)

    failure: AuthorizationFailed | None = None
    async with serving(app) as url, open_http() as http:
        try:
            return await fetch_document(http, url)
        except AuthorizationFailed as e:
            failure = e
    raise failure


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_server_that_cannot_answer_now_has_not_said_that_there_is_nothing(status: int) -> None:
    with pytest.raises(AuthorizationFailed, match=str(status)):
        await fetch(JSONResponse({}, status))


@pytest.mark.parametrize(
    "answer",
    [
        JSONResponse({"issuer": "x"}, 404),
        Response("<html>"),
        JSONResponse([1]),
        Response(b"\xff{"),
        Response("[" * 9999),
    ],
)
async def test_what_is_no_document_is_no_document(answer: Response) -> None:
    assert await fetch(answer) is None


@pytest.mark.parametrize("target", ["http://as.example/", "file:///etc/passwd", "/mcp"])
async def test_a_redirect_leads_nowhere_that_could_not_be_asked_at_once(target: str) -> None:
    with pytest.raises(AuthorizationFailed, match=r"address|circles"):
        await fetch(RedirectResponse(target))


async def test_a_document_without_end_is_not_read() -> None:
    with pytest.raises(AuthorizationFailed, match="more than"):
        await fetch(JSONResponse({"x": "y" * MAX_DOCUMENT}))


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"access_token": ""},
        {"access_token": "two\r\nlines"},
        {"access_token": 7},
        {"access_token": "x" * 40_000},
        {"access_token": "x", "token_type": "mac"},
    ],
)
def test_an_answer_without_a_usable_token_is_a_failure(said: dict[str, Any]) -> None:
    with pytest.raises(AuthorizationFailed):
        _token(said, refresh="", scopes=(), now=0)


@pytest.mark.parametrize("lasts", [None, "soon", -1, float("inf"), 1e300, [], True])
def test_a_senseless_lifetime_is_as_good_as_none(lasts: Any) -> None:
    token = _token({"access_token": "x", "expires_in": lasts}, refresh="r", scopes=("s",), now=0)
    assert (token.refresh, token.scopes) == ("r", ("s",))
    assert token.expires_at is None or token.expires_at == 1
