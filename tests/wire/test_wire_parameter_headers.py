"""Arguments that travel in headers too: their spelling, broken marks, disagreement."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.world import META

from nanobot.wire.envelope import open_envelope
from nanobot.wire.header_values import header_text, header_value
from nanobot.wire.parameter_headers import check, fault, places_in
from nanobot.wire.rpc import HEADER_MISMATCH, Payload, Request, RpcError


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def marked(name: Any, kind: str = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name}


@given(st.text())
def test_any_text_survives_the_way_through_a_header(text: str) -> None:
    sent = header_text(text)
    assert sent.isascii()
    assert sent.isprintable()
    assert header_value(sent.encode()) == text
    assert header_value(f" \t{sent} ".encode()) == text


def test_blanks_around_a_header_of_the_envelope_are_not_part_of_it() -> None:
    request = Request(1, "tools/call", Payload.of({"name": "echo"}))
    headers = {
        b"mcp-protocol-version": b"2026-07-28 ",
        b"mcp-method": b"\ttools/call",
        b"mcp-name": b"  echo  ",
    }
    assert open_envelope(request, META, headers=headers).era == "modern"


@pytest.mark.parametrize("header", ["=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?/w==?=", None])
def test_a_header_that_is_missing_or_badly_wrapped_says_nothing(header: str | None) -> None:
    assert header_value(None if header is None else header.encode()) is None


@pytest.mark.parametrize(
    "broken",
    [
        schema(a=marked("")),
        schema(a=marked(7)),
        schema(a=marked("My Region")),
        schema(a=marked("Region:1")),
        schema(a=marked("Région")),
        schema(a=marked("Region\t1")),
        schema(a=marked("Data", "object")),
        schema(a=marked("Score", "number")),
        schema(a={"x-mcp-header": "Untyped"}),
        schema(a=marked("Region"), b=marked("region")),
        schema(a={"type": "object", "properties": {"b": marked("")}}),
    ],
)
def test_a_broken_mark_is_told_and_stands_for_no_header(broken: dict[str, Any]) -> None:
    assert "x-mcp-header of a" in fault(broken) or "x-mcp-header of b" in fault(broken)
    assert places_in(broken) == {}


MARKED = schema(
    region=marked("Region"),
    count=marked("Count", "integer"),
    dry=marked("Dry", "boolean"),
    at=schema(city=marked("City")),
)


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({}, {}),
        ({"region": None}, {}),
        ({"region": ""}, {"region": ""}),
        ({"region": "eu"}, {"region": " eu "}),
        ({"region": "Hello"}, {"region": "=?base64?SGVsbG8=?="}),
        ({"region": "=?base64?SGVs"}, {"region": "=?base64?SGVs"}),
        ({"count": 42}, {"count": "42"}),
        ({"count": 42}, {"count": "42.0"}),
        ({"dry": False}, {"dry": "false"}),
        ({"at": {"city": "Oslo"}}, {"city": "Oslo"}),
        ({"other": "eu"}, {}),
    ],
)
def test_headers_that_say_what_the_arguments_say_are_fine(arguments: Any, headers: dict[str, str]) -> None:
    assert fault(MARKED) == ""
    check(places_in(MARKED), arguments, encoded(headers))


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu"}, {}),
        ({}, {"region": "eu"}),
        ({"region": None}, {"region": "null"}),
        ({"region": "eu"}, {"region": "us"}),
        ({"region": "Hello"}, {"region": "=?base64?SGVsbG8?="}),
        ({"count": 42}, {"count": "43"}),
        ({"count": 42}, {"count": "forty-two"}),
        ({"count": 1}, {"count": "true"}),
        ({"dry": True}, {"dry": "1"}),
        ({"at": {"city": "Oslo"}}, {"city": "Bergen"}),
        ("no object", {"region": "eu"}),
    ],
)
def test_headers_and_arguments_that_disagree_are_refused(arguments: Any, headers: dict[str, str]) -> None:
    with pytest.raises(RpcError, match="mcp-param-") as refused:
        check(places_in(MARKED), arguments, encoded(headers))
    assert refused.value.rpc_code == HEADER_MISMATCH


def encoded(headers: dict[str, str]) -> dict[bytes, bytes]:
    return {f"mcp-param-{name}".encode(): value.encode() for name, value in headers.items()}
