"""`nanobot config schema`: what editors are told is what the loader says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.peers.programs import nanobot

from nanobot.config import keys
from nanobot.config.diagnostics import Diagnostics
from nanobot.config.document_schema import Kind, document_schema
from nanobot.config.front_matter import parse_markdown
from nanobot.config.nodes import from_plain, plain
from nanobot.config.places import Origin
from nanobot.config.shapes import (
    Duration,
    Flag,
    Ignored,
    Later,
    ListOf,
    MapOf,
    Names,
    Number,
    Shape,
    Table,
    Text,
    TextOr,
    accept,
    spellings,
)
from nanobot.config.yaml_text import parse_yaml

ROOT = Path(__file__).parents[2]
TABLES: dict[Kind, Table] = {
    "nanobot": keys.DOCUMENT,
    "agent": keys.AGENT_FILE,
    "mcp": keys.MCP_DOCUMENT,
}


@cache
def validator(kind: Kind) -> Any:
    return jsonschema_rs.validator_for(document_schema(kind))


def loads(kind: Kind, document: Any) -> bool:
    """Whether the loader takes `document` for one of this kind."""
    found = Diagnostics()
    accept(TABLES[kind], from_plain(document, Origin("x", 1)), found.root)
    return not any(finding.severity == "error" for finding in found.sorted())


def examples() -> Iterator[tuple[str, Kind, Any]]:
    for page in sorted((ROOT / "docs").glob("*.md")):
        for snippet in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            yield page.name, "nanobot", read(snippet)
    for file in sorted((ROOT / "examples").rglob("*.yaml")):
        yield file.name, "nanobot", read(file.read_text(encoding="utf-8"))
    for file in sorted((ROOT / "examples").rglob("agents/*.md")):
        meta = parse_markdown(file.read_text(encoding="utf-8"), file.name, Diagnostics()).meta
        yield file.name, "agent", plain(meta) if meta else None


def read(text: str) -> Any:
    node = parse_yaml(text, "example", Diagnostics())
    return plain(node) if node else None


def tables(shape: Shape, wrap: tuple[Any, ...] = ()) -> Iterator[tuple[Table, tuple[Any, ...]]]:
    """Every table below `shape`, with the keys and indexes that lead there; nesting is followed twice."""
    if len(wrap) > 12:
        return
    match shape:
        case Table():
            yield shape, wrap
            for key, inner in shape.keys.items():
                if key != "profiles":
                    yield from tables(inner, (*wrap, key))
        case MapOf(shape=inner, check_key=check):
            name = "read" if check is keys.check_permission else "x"
            if wrap[-2:] != (name, "fields"):
                yield from tables(inner, (*wrap, name))
        case ListOf(shape=inner):
            yield from tables(inner, (*wrap, 0))
        case TextOr(other=inner):
            yield from tables(inner, wrap)
        case Later(shape=later):
            yield from tables(later(), wrap)
        case _:
            pass


def wrapped(value: Any, wrap: tuple[Any, ...]) -> Any:
    for step in reversed(wrap):
        value = [value] if step == 0 else {step: value}
    return value


@pytest.mark.parametrize("kind", TABLES)
def test_the_program_prints_a_schema_that_is_one(kind: Kind, tmp_path: Path) -> None:
    printed = nanobot("config", "schema", kind, home=tmp_path)
    assert (printed.returncode, printed.stderr) == (0, "")
    schema = json.loads(printed.stdout)
    jsonschema_rs.meta.validate(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    written = nanobot("config", "schema", kind, "--output", "s.json", home=tmp_path, cwd=tmp_path)
    assert (written.returncode, written.stdout) == (0, "")
    assert (tmp_path / "s.json").read_text() == printed.stdout


def test_it_is_that_of_a_nanobot_yaml_where_nothing_is_said(tmp_path: Path) -> None:
    printed = nanobot("config", "schema", home=tmp_path)
    assert json.loads(printed.stdout)["$id"] == "https://nanobot.dev/schemas/nanobot.schema.json"
    assert nanobot("config", "schema", "task", home=tmp_path).returncode == 2


def test_every_example_is_valid() -> None:
    seen = list(examples())
    assert {kind for _, kind, _ in seen} == {"nanobot", "agent"}
    for name, kind, document in seen:
        assert [str(e) for e in validator(kind).iter_errors(document)] == [], name


@pytest.mark.parametrize("kind", TABLES)
def test_no_misspelt_key_is_valid_anywhere(kind: Kind) -> None:
    for table, wrap in tables(TABLES[kind]):
        assert validator(kind).is_valid(wrapped({}, wrap)), wrap
        for key in table.keys:
            wrong = wrapped({f"{key}x": None}, wrap)
            assert not loads(kind, wrong), wrong
            assert not validator(kind).is_valid(wrong), wrong


@pytest.mark.parametrize("kind", TABLES)
def test_every_spelling_is_valid_and_two_of_one_key_are_not(kind: Kind) -> None:
    for table, wrap in tables(TABLES[kind]):
        for key in table.keys:
            names = sorted(spellings(key))
            assert all(validator(kind).is_valid(wrapped({name: None}, wrap)) for name in names), (wrap, key)
            for one in names[1:]:
                both = wrapped({names[0]: None, one: None}, wrap)
                assert not loads(kind, both), both
                assert not validator(kind).is_valid(both), both


@pytest.mark.parametrize("kind", TABLES)
def test_editors_are_told_what_every_key_means(kind: Kind) -> None:
    document = document_schema(kind)
    tables = [document, *(definition["anyOf"][0] for definition in document["$defs"].values())]
    told = [value for table in tables for value in table.get("properties", {}).items()]
    assert [key for key, value in told if not value.get("description")] == []


def test_editors_offer_one_spelling() -> None:
    agent = document_schema("agent")
    assert agent["properties"]["maxTokens"]["description"] == "Longest answer in tokens."
    assert "max_tokens" not in agent["properties"]


@pytest.mark.parametrize(
    "document",
    [
        {"agents": {"a": {"toolExtensions": {"t": {"$replace": False}}}}},
        {"env": {"$replace": "text"}},
        {"mcpServers": {"s": {"sandbox": {"memory": "2t"}}}},
        {"sessions": {"idleTimeout": 1}},
        {"agents": {"a:b": {}}},
    ],
)
def test_what_the_loader_refuses_is_not_valid(document: Any) -> None:
    assert not loads("nanobot", document)
    assert not validator("nanobot").is_valid(document)


@pytest.mark.parametrize(
    "document",
    [
        {"agents": {"a": {"tools": {"$replace": ["x/y"]}, "model": None}}},
        {"env": {"A": "what it is for"}, "sessions": {"idle-timeout": "15m"}},
        {"mcpServers": {"s": {"sandbox": "off"}, "t": {"sandbox": {"memory": "512M"}}}},
        {"profiles": {"p": {"agents": {"a": {"max_tokens": 5}}}}},
    ],
)
def test_what_the_loader_takes_is_valid(document: Any) -> None:
    assert loads("nanobot", document)
    assert validator("nanobot").is_valid(document)


def values(shape: Shape) -> st.SearchStrategy[Any]:
    """Values that `shape` takes, and some that it may not take."""
    return st.one_of(_fitting(shape), _fitting(shape), _fitting(shape), ANYTHING)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats(0, 2)
    | st.sampled_from(["", "a", "a,b", "5m", "off"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["name", "a", "a:b", "a/b", "read", "$replace"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def _fitting(shape: Shape) -> st.SearchStrategy[Any]:
    match shape:
        case Text(words=words) if words:
            return st.sampled_from(words)
        case Text(pattern=pattern) if pattern:
            return st.from_regex(pattern, fullmatch=True)
        case Text():
            return st.text(max_size=5)
        case Flag():
            return st.booleans()
        case Number(low=low, high=high, whole=whole):
            edges = [int(edge) if whole else edge for edge in (low, high) if abs(edge) < 1e18]
            return st.sampled_from([*edges, *(edge + step for edge in edges for step in (-1, 1)), 1, 1.5])
        case Duration():
            return st.sampled_from(["90s", " 15m ", "1 h", "h", 90, 0.5, -1])
        case Names():
            return st.lists(st.sampled_from(["a", "b", "", 1]), max_size=3) | st.sampled_from(["", "a, b"])
        case Table():
            return _entries(shape)
        case MapOf(shape=inner):
            names = st.sampled_from(["a", "a/b", "a:b", "", "read", "raed"])
            return st.dictionaries(names, values(inner), max_size=2)
        case ListOf(shape=inner):
            return st.lists(values(inner), max_size=2)
        case TextOr(other=other):
            return st.text(max_size=3) | _fitting(other)
        case Later(shape=later):
            return st.deferred(lambda: _fitting(later()))
        case Ignored():
            return st.just("x")
        case _:
            return st.dictionaries(st.text(max_size=3), ANYTHING, max_size=2)


def _entries(table: Table) -> st.SearchStrategy[Any]:
    """A few keys of `table` in some spelling, and now and then one it does not have."""
    written: Mapping[str, Shape] = {
        spelling: shape
        for key, shape in table.keys.items()
        if key != "profiles"
        for spelling in spellings(key)
    }

    def value_of(name: str) -> st.SearchStrategy[tuple[str, Any]]:
        return st.tuples(st.just(name), values(written[name]) if name in written else st.none())

    names = st.sampled_from([*written, "unknown"])
    return st.lists(names.flatmap(value_of), max_size=3).map(dict)


@pytest.mark.parametrize("kind", TABLES)
@given(data=st.data())
def test_the_schema_and_the_loader_agree(kind: Kind, data: st.DataObject) -> None:
    document = data.draw(_entries(TABLES[kind]))
    assert validator(kind).is_valid(document) == loads(kind, document), document
