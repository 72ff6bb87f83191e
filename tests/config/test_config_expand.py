"""`${NAME}` in configured text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.config.expand import UnsetVariable, expand, expand_or_none, find_variable
from nanobot.errors import ConfigError

ENV = {"HOST": "h", "REGION": "eu", "A_eu": "nested", "EMPTY": "", "TRICK": "${HOST}", "my-token": "t"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("plain", "plain"),
        ("${HOST}", "h"),
        ("${HOST}/${REGION}", "h/eu"),
        ("http://${HOST}:80/x", "http://h:80/x"),
        ("${A_${REGION}}", "nested"),
        ("$HOST costs $5", "$HOST costs $5"),
        ("${HOST", "${HOST"),
        ("${ and ${HOST}", "${ and h"),
        ("$${HOST}", "${HOST}"),
        ("$$${HOST}", "$${HOST}"),
        ("{${HOST}}", "{h}"),
        ("${NONE:-d}", "d"),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY}", ""),
        ("${HOST:-d}", "h"),
        ("${NONE:-${REGION}}", "eu"),
        ("${NONE:-{a}}", "{a}"),
        ("${NONE:-$${HOST}}", "${HOST}"),
        ("${A_${NONE:-eu}:-x}", "nested"),
        ("${TRICK}", "${HOST}"),
        ("${host}", "h"),
        ("${MY_TOKEN}", "t"),
        ("}${HOST}{", "}h{"),
    ],
)
def test_expansion(text: str, expanded: str) -> None:
    assert expand(text, ENV) == expanded


def test_an_unset_variable_is_named() -> None:
    with pytest.raises(UnsetVariable, match="'TOK'") as caught:
        expand("Bearer ${TOK}", ENV)
    assert caught.value.name == "TOK"
    assert expand_or_none("Bearer ${TOK}", ENV) is None


def test_exact_names_come_before_similar_ones() -> None:
    assert find_variable("A_B", {"a-b": "3", "A-B": "2", "A_B": "1"}) == "1"
    assert find_variable("a_b", {"a-b": "3", "A-B": "2"}) == "2"
    assert find_variable("a-b", {"A_B": "1"}) is None


def test_nesting_is_bounded() -> None:
    with pytest.raises(ConfigError, match="deeper than 100"):
        expand("${" * 5000 + "A" + "}" * 5000, ENV)


def test_unclosed_references_cost_no_time() -> None:
    text = "${" * 200_000
    assert expand(text, ENV) == text


def test_time_is_always_set() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", expand("${nanobot:time}", {}))
    assert re.fullmatch(r"\d{4}/\d\d", expand("${nanobot:time}", {"TIME_FORMAT": "2006/01"}))
    assert re.fullmatch(r"\d\d h", expand("${nanobot:time}", {"TIME_FORMAT": "%H h", "TZ": "Europe/Prague"}))


@given(st.text())
def test_text_without_references_is_left_alone(text: str) -> None:
    if "${" not in text:
        assert expand(text, ENV) == text


@given(st.text("${}:-AB"), st.text("${}AB", max_size=5))
def test_values_are_never_expanded_again(text: str, value: str) -> None:
    """A value full of markers comes through like one without any."""
    marked = {"A": value, "B": value, "AB": value}
    neutral = dict.fromkeys(marked, "\x00")
    seen, expected = expand_or_none(text, marked), expand_or_none(text, neutral)
    if expected is not None and seen is not None and value:
        assert seen == expected.replace("\x00", value)
