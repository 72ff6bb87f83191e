"""What a provider's failure means to us."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nanobot.http import HttpError
from nanobot.llm.failures import broken, refused, reported, retry_after


def openai_error(message: str = "", code: Any = None, type: str = "") -> bytes:
    return json.dumps({"error": {"message": message, "code": code, "type": type}}).encode()


@pytest.mark.parametrize(
    ("status", "body", "kind", "retryable"),
    [
        (400, openai_error("bad", type="invalid_request_error"), "invalid_request", False),
        (400, openai_error("too long", code="context_length_exceeded"), "context_length", False),
        (400, openai_error("prompt is too long: 210000 tokens"), "context_length", False),
        (400, openai_error("maximum context length is 4096"), "context_length", False),
        (400, openai_error("blocked", code="content_policy_violation"), "content", False),
        (400, openai_error("API key not valid. Please pass a valid key."), "authentication", False),
        (401, openai_error("no"), "authentication", False),
        (403, openai_error("no"), "authentication", False),
        (402, b"", "billing", False),
        (404, openai_error("no such model", code="model_not_found"), "not_found", False),
        (408, b"", "timeout", True),
        (409, b"", "server", True),
        (413, b"", "context_length", False),
        (422, openai_error("unprocessable"), "invalid_request", False),
        (429, openai_error("slow down", code="rate_limit_exceeded"), "rate_limit", True),
        (429, openai_error("quota", code="insufficient_quota"), "billing", False),
        (429, openai_error("You exceeded your current quota"), "billing", False),
        (500, openai_error("oops", type="server_error"), "server", True),
        (503, b"<html>unavailable</html>", "server", True),
        (504, b"", "timeout", True),
        (529, json.dumps({"type": "error", "error": {"type": "overloaded_error"}}).encode(), "server", True),
        (
            400,
            json.dumps([{"error": {"code": 400, "message": "m", "status": "X"}}]).encode(),
            "invalid_request",
            False,
        ),
        (400, b'{"error": "just text"}', "invalid_request", False),
        (400, b'"text"', "invalid_request", False),
        (400, b"\xff\xfe", "invalid_request", False),
    ],
)
def test_a_status_and_a_body_have_one_meaning(status: int, body: bytes, kind: str, retryable: bool) -> None:
    error = refused("acme", status, {}, body)
    assert (error.kind, error.retryable, error.status) == (kind, retryable, status)
    assert "acme" in str(error)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"code": "rate_limit_exceeded", "message": "m"}, "rate_limit"),
        ({"code": "server_error", "message": "m"}, "server"),
        ({"type": "error", "error": {"type": "api_error", "message": "m"}}, "server"),
        ({"error": {"type": "invalid_request_error", "message": "m"}}, "invalid_request"),
        ({"error": {"type": "authentication_error", "message": "m"}}, "authentication"),
        ({"error": {"type": "permission_error", "message": "m"}}, "authentication"),
        ({"error": {"type": "request_too_large", "message": "m"}}, "context_length"),
        ({"error": {"code": 429, "message": "m"}}, "rate_limit"),
        ({"error": "rate limit reached"}, "rate_limit"),
        ({"error": {"message": None}}, "server"),
    ],
)
def test_an_error_inside_a_stream_is_read_by_its_fields(said: Any, kind: str) -> None:
    assert reported("acme", said).kind == kind


@pytest.mark.parametrize(("says", "retryable"), [("true", True), ("false", False)])
def test_a_provider_may_say_whether_to_retry(says: str, retryable: bool) -> None:
    for status in (400, 500):
        assert refused("acme", status, {"x-should-retry": says}, b"").retryable is retryable


@pytest.mark.parametrize(
    ("cause", "kind", "retryable"),
    [
        ("connect", "connection", True),
        ("closed", "connection", True),
        ("timeout", "timeout", True),
        ("tls", "tls", False),
        ("bad_url", "invalid_request", False),
    ],
)
def test_a_broken_exchange_is_classified(cause: Any, kind: str, retryable: bool) -> None:
    error = broken("acme", HttpError(cause, "It broke.", sent=False))
    assert (error.kind, error.retryable) == (kind, retryable)


@pytest.mark.parametrize(
    ("headers", "text", "seconds"),
    [
        ({"retry-after-ms": "1500", "retry-after": "9"}, "", 1.5),
        ({"retry-after": "7"}, "try again in 3s", 7),
        ({"retry-after": "0.5"}, "", 0.5),
        (
            {
                "retry-after": "Wed, 21 Oct 2026 07:28:30 GMT",
                "date": "Wed, 21 Oct 2026 07:28:00 GMT",
            },
            "",
            30,
        ),
        (
            {"retry-after": "Wed, 21 Oct 2026 07:00:00 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"},
            "",
            0,
        ),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after": "nan"}, "", None),
        ({"retry-after": "-3"}, "", None),
        ({}, "Please retry after 12 seconds.", 12),
        ({}, "Please try again in 20ms.", 0.02),
        ({}, "try again in 1.5s", 1.5),
        ({}, "wait 2 minutes before retry", 120),
        ({}, "try again in 3m", 180),
        ({}, "try again later", None),
    ],
)
def test_the_wait_a_provider_asks_for(headers: dict[str, str], text: str, seconds: float | None) -> None:
    assert retry_after(headers, text) == seconds


def test_what_people_read_is_short_and_says_what_to_do() -> None:
    error = refused("acme", 400, {}, openai_error("x" * 5000))
    assert len(str(error)) < 400
    assert "check the key" in str(refused("acme", 401, {}, b""))
