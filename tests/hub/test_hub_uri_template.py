"""Which URIs a template may have made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import UriTemplate as OfficialTemplate

from nanobot.hub.uri_template import UriTemplate


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("a:///x", "a:///x"),
        ("a:///{id}", "a:///1"),
        ("a:///{id}/b", "a:///a%20b/b"),
        ("a:///{x}-{y}", "a:///1-2-3"),
        ("a:///{+path}", "a:///b/c?d#e"),
        ("a:///f{.ext}", "a:///f.txt"),
        ("a:///f{.ext}", "a:///f"),
        ("a://{/x,y}", "a:///1/2"),
        ("a:///s{?q,n}", "a:///s?q=1&n=2"),
        ("a:///s{?q,n}", "a:///s"),
        ("a:///s?f=1{&q}", "a:///s?f=1&q=2"),
        ("a:///s{#f}", "a:///s#top/1"),
        ("a:///s{;v}", "a:///s;v=1"),
        ("{+all}", "anything:/at?all"),
        ("a:///{+x}/end", "a:///1/end/end"),
    ],
)
def test_a_uri_the_template_can_make_matches(template: str, uri: str) -> None:
    assert UriTemplate(template).matches(uri)


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("a:///x", "a:///xy"),
        ("a:///{id}", "a:///"),
        ("a:///{id}", "a:///1/2"),
        ("a:///{id}", "b:///1"),
        ("a:///{id}/b", "a:///1/c"),
        ("a:///s{?q}", "a:///sq=1"),
        ("", "a:///x"),
    ],
)
def test_a_uri_it_cannot_make_does_not(template: str, uri: str) -> None:
    assert not UriTemplate(template).matches(uri)


def test_a_hostile_template_costs_no_more_than_its_length() -> None:
    """A backtracking matcher would not come back from this one."""
    template = UriTemplate("a:///" + "{+x}a" * 15 + "!")
    assert not template.matches("a:///" + "a" * 4000)
    assert not UriTemplate("{+x}a" * 5000).matches("a" * 4000)


@given(
    template=st.sampled_from(
        [
            "a://{x}",
            "a:///p/{x}/q/{y}",
            "a:///{+x}/end{y}",
            "a:///f{.x}",
            "a://h{/x,y}",
            "a:///s{?x,y}{&z}",
            "a:///{x}{#y}",
        ]
    ),
    values=st.fixed_dictionaries({}, optional={name: st.text(min_size=1, max_size=8) for name in "xyz"}),
)
def test_what_the_official_sdk_makes_of_a_template_matches_it(template: str, values: dict[str, str]) -> None:
    values = {"x": "1", "y": "2"} | values
    assert UriTemplate(template).matches(OfficialTemplate.parse(template).expand(values))
