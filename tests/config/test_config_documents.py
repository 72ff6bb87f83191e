"""Reading documents: YAML, JSON, front matter; positions, limits and what bad text says."""

# ruff: noqa: E501 - a message is easier to compare on one line

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.config.diagnostics import Diagnostics
from nanobot.config.front_matter import parse_markdown
from nanobot.config.json_text import parse_json
from nanobot.config.nodes import Entries, plain
from nanobot.config.yaml_dump import dump_yaml
from nanobot.config.yaml_text import parse_yaml

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


def yaml(text: str) -> Any:
    found = Diagnostics()
    node = parse_yaml(text, "a.yaml", found)
    assert found.sorted() == ()
    return None if node is None else plain(node)


def yaml_problems(text: str) -> list[str]:
    found = Diagnostics()
    parse_yaml(text, "a.yaml", found)
    return [str(d) for d in found.sorted()]


def json_problems(text: str) -> list[str]:
    found = Diagnostics()
    parse_json(text, "a.json", found)
    return [str(d) for d in found.sorted()]


def test_words_mean_what_yaml_1_2_says() -> None:
    assert yaml("[on, yes, no, 010, 0o10, 0x1F, 1e3, 2026-07-28, 12:30:45, ~, True, '1', 1_000, .5]") == [
        "on", "yes", "no", 10, 8, 31, 1000.0, "2026-07-28", "12:30:45", None, True, "1", "1_000", 0.5,
    ]  # fmt: skip


def test_anchors_and_merge_keys_are_written_out() -> None:
    assert yaml(
        "base: &b {x: 1, y: 2}\none: {<<: *b, y: 3}\ntwo: {<<: [*b, {z: 4}], z: 5}\nquoted: {'<<': 1}"
    ) == {
        "base": {"x": 1, "y": 2},
        "one": {"y": 3, "x": 1},
        "two": {"z": 5, "x": 1, "y": 2},
        "quoted": {"<<": 1},
    }


def test_separators_of_old_yaml_are_text_in_new() -> None:
    assert yaml("a: one\u2028two\x85three\nb: 2") == {"a": "one\u2028two\x85three", "b": 2}


@given(JSON)
def test_what_is_dumped_reads_back_the_same(value: Any) -> None:
    assert yaml(dump_yaml(value)) == value


@given(JSON)
def test_any_json_reads_as_json_and_remains_json_in_yaml(value: Any) -> None:
    found = Diagnostics()
    node = parse_json(json.dumps(value), "a.json", found)
    assert found.sorted() == ()
    assert node is not None
    assert plain(node) == value


@given(st.text(max_size=200))
def test_no_text_can_break_the_readers(text: str) -> None:
    for parse in (parse_yaml, parse_json):
        parse(text, "a", Diagnostics())
    parse_markdown(text, "a", Diagnostics())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3\n", "a.yaml:3:1: error[duplicate-key]: The key 'a' is written twice: on line 1 and on line 3. (delete one of them)"),
        ("a: 1\n---\nb: 2\n", "a.yaml:2:1: error[syntax]: A second document begins; one file holds one."),
        ("a: !secret x\n", "a.yaml:1:4: error[syntax]: Custom tags (`!…`) are not supported. (put the value in quotes if text is meant)"),
        ("a: *b\n", "a.yaml:1:4: error[syntax]: The alias *b has no anchor &b before it."),
        ("a: &a [*a]\n", "a.yaml:1:8: error[syntax]: The alias *a has no anchor &a before it."),
        ("a: {b: ${X}}\n", "a.yaml:1:9: error[syntax]: Not valid YAML: did not find expected ',' or '}'. (inside […] and {…}, text with braces such as ${NAME} must be quoted)"),
        ("a: .inf\n", "a.yaml:1:4: error[syntax]: Infinity and NaN have no place here. (put it in quotes if text is meant)"),
        ("a: b: c\n", "a.yaml:1:5: error[syntax]: Not valid YAML: mapping values are not allowed in this context. (text with `: ` in it must be quoted)"),
        ("a: \x01\n", "a.yaml:1:4: error[syntax]: Not valid YAML: control characters are not allowed."),
    ],
)  # fmt: skip
def test_bad_yaml_is_told_with_its_place(text: str, problem: str) -> None:
    assert yaml_problems(text) == [problem]


@pytest.mark.parametrize("text", ["[" * 70 + "]" * 70, "- " * 100_000 + "x", "[" * 500_000])
def test_depth_is_bounded(text: str) -> None:
    (problem,) = yaml_problems(text)
    assert "deeper than 64" in problem or "nesting" in problem


def test_depth_is_bounded_with_aliases_written_out() -> None:
    text = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 100))
    (problem,) = yaml_problems(text)
    assert "Nested deeper than 64 levels" in problem


def test_a_bomb_of_aliases_is_refused() -> None:
    text = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))
    (problem,) = yaml_problems(text)
    assert "More than 100000 values" in problem


def test_json_may_have_comments_and_trailing_commas() -> None:
    found = Diagnostics()
    node = parse_json('// top\n{"a": [1, 2.5, -3,], /* in\nside */ "b": {"c": null,},}\n', "a.json", found)
    assert found.sorted() == ()
    assert isinstance(node, Entries)
    assert plain(node) == {"a": [1, 2.5, -3], "b": {"c": None}}
    assert (node.entries["b"].key_at.line, node.entries["b"].key_at.column) == (3, 9)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1, "a": 2}', "a.json:1:10: error[duplicate-key]: The key 'a' is written twice: on line 1 and on line 1. (delete one of them)"),
        ('{"a": }', "a.json:1:7: error[syntax]: Not valid JSON: a value is missing here."),
        ('{"a": yes}', "a.json:1:7: error[syntax]: Not valid JSON: text must be in double quotes."),
        ("{a: 1}", "a.json:1:2: error[syntax]: Not valid JSON: a key in double quotes is expected."),
        ('{"a": "b', "a.json:1:7: error[syntax]: Not valid JSON: this text does not end on its line."),
        ('{"a": [1, 2', "a.json:1:12: error[syntax]: Not valid JSON: `,` or `]` is expected."),
        ('{"a": "\\ud800"}', "a.json:1:7: error[syntax]: Not valid JSON: this text holds half a surrogate pair."),
        ("{} {}", "a.json:1:4: error[syntax]: Not valid JSON: something follows the end of the document."),
        ('{"a": 1e999}', "a.json:1:7: error[syntax]: Not valid JSON: this number is too large."),
    ],
)  # fmt: skip
def test_bad_json_is_told_with_its_place(text: str, problem: str) -> None:
    assert json_problems(text) == [problem]


def test_front_matter_of_a_windows_editor() -> None:
    markdown = parse_markdown("\ufeff---  \r\nname: Ada\r\n---\r\nHi\r\n", "a.md", Diagnostics())
    assert markdown.meta is not None
    assert (plain(markdown.meta), markdown.body, markdown.body_line) == ({"name": "Ada"}, "Hi", 4)


def test_an_indented_rule_inside_front_matter_is_text() -> None:
    markdown = parse_markdown(
        "---\nname: |\n  a\n  ---\n  b\n--- \n\n\nBody\n---\nmore\n", "a.md", Diagnostics()
    )
    assert markdown.meta is not None
    assert (plain(markdown.meta), markdown.body, markdown.body_line) == (
        {"name": "a\n---\nb"},
        "Body\n---\nmore",
        9,
    )


def test_text_without_front_matter_is_all_body() -> None:
    markdown = parse_markdown("\n---\nname: x\n---\n", "a.md", Diagnostics())
    assert markdown.meta is not None
    assert (plain(markdown.meta), markdown.body) == ({}, "---\nname: x\n---")


@pytest.mark.parametrize("block", ["", "# only a comment\n", "null\n"])
def test_empty_front_matter_is_an_empty_mapping(block: str) -> None:
    found = Diagnostics()
    markdown = parse_markdown(f"---\n{block}---\nx", "a.md", found)
    assert markdown.meta is not None
    assert (plain(markdown.meta), found.sorted()) == ({}, ())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("---\nname: x\n", "a.md:1:1: error[front-matter-unclosed]: The front matter that begins here is not closed by a line `---`."),
        ("---\n- x\n---\n", "a.md:2:1: error[front-matter-invalid]: Front matter must be a mapping of keys to values."),
        ("---\na: b\nc: d: e\n---\n", "a.md:3:5: error[front-matter-invalid]: Not valid YAML: mapping values are not allowed in this context. (text with `: ` in it must be quoted)"),
        ("---\na: b\na: c\n---\n", "a.md:3:1: error[duplicate-key]: The key 'a' is written twice: on line 2 and on line 3. (delete one of them)"),
    ],
)  # fmt: skip
def test_bad_front_matter_names_the_line_in_the_file(text: str, problem: str) -> None:
    found = Diagnostics()
    parse_markdown(text, "a.md", found)
    assert [str(d) for d in found.sorted()] == [problem]
