"""What is hidden of a server's words: secrets in every spelling, and nothing else."""

from __future__ import annotations

import json

from nanobot.errors import UpstreamUnavailable
from nanobot.upstream.secrecy import RecentSecrets, Secrecy
from nanobot.wire.rpc import Payload, RpcError


def secrecy(*sent: str, own: tuple[str, ...] = ()) -> Secrecy:
    recent = RecentSecrets()
    recent.remember(*sent)
    return Secrecy(recent, own)


def test_a_header_is_hidden_whole_and_without_its_scheme() -> None:
    knows = secrecy("Bearer tok-123456", own=("operator",))
    assert knows.hide("got Bearer tok-123456, tok-123456; operator") == "got ***, ***; ***"


def test_no_piece_of_a_longer_secret_remains() -> None:
    assert secrecy("secret", "secret-and-more").hide("secret-and-more") == "***"


def test_spellings_of_json_and_of_addresses_are_known() -> None:
    knows = secrecy('tok/"1 2')
    assert knows.hide(json.dumps('tok/"1 2')) == '"***"'
    assert knows.hide("https://x.example/tok/%221%202?t=tok%2F%221%202") == "https://x.example/***?t=***"


def test_json_stays_json_whatever_the_secret_is() -> None:
    knows = secrecy('":{"a"', "123456")
    raw = b'{"n":123456,"s":"123456","k":{"a":1},"e":"\\u00312345\\u0036"}'
    assert knows.hide_in_json(Payload.encoded(raw)).value == {
        "n": 123456,
        "s": "***",
        "k": {"a": 1},
        "e": "***",
    }


def test_what_holds_no_secret_keeps_its_bytes() -> None:
    payload = Payload.encoded(b'{ "a" : "b\\n" }')
    assert secrecy("something").hide_in_json(payload) is payload


def test_an_error_is_cleaned_with_its_causes() -> None:
    knows = secrecy("tok-123456")
    cause = RpcError(1, "no tok-123456", Payload.of({"was": ["tok-123456"]}))
    error = UpstreamUnavailable("far", "said tok-123456")
    error.__cause__ = cause
    knows.hide_in(error)
    assert "tok-" not in f"{error} {error.reason} {cause} {cause.message}"
    assert cause.data is not None
    assert cause.data.value == {"was": ["***"]}


def test_only_so_many_are_remembered_and_those_in_use_longest() -> None:
    recent = RecentSecrets(most=2)
    recent.remember("first-one", "second-one")
    recent.remember("first-one")
    recent.remember("third-one")
    assert Secrecy(recent).hide("first-one second-one third-one") == "*** second-one ***"
    recent.remember("short")
    assert Secrecy(recent).hide("first-one short") == "*** short"
