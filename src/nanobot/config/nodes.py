"""A parsed document: plain values, each knowing where it was written and how it merges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from nanobot.config.places import Origin

MAX_DEPTH = 64
MAX_NODES = 100_000
"""Nodes of one document with every alias written out."""

Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Scalar:
    """`kept`: a null inside free data, which is a value of its own and not the wish to delete a key."""

    value: Value
    at: Origin
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """A list. `unique`: a list of names, later duplicates fall away. `replaces`: was `{$replace: […]}`.

    `leads`: laid over another list it comes first, because of such lists the first that fits decides.
    """

    items: tuple[Node, ...]
    at: Origin
    unique: bool = False
    replaces: bool = False
    leads: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    key_at: Origin
    node: Node


@dataclass(frozen=True, slots=True)
class Entries:
    """A mapping. `replaces`: was `{$replace: {…}}`."""

    entries: dict[str, Entry]
    at: Origin
    replaces: bool = False


Node = Scalar | Items | Entries


def is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None and not node.kept


def kind_of(node: Node) -> str:
    """The kind of `node` as a person calls it: "a number", "a list", …"""
    match node:
        case Items():
            return "a list"
        case Entries():
            return "a mapping"
        case Scalar(value=None):
            return "nothing"
        case Scalar(value=bool()):
            return "true/false"
        case Scalar(value=int() | float()):
            return "a number"
        case Scalar():
            return "text"


def shown_key(key: str) -> str:
    return repr(key) if len(key) <= 64 else repr(key[:64] + "…")


def plain(node: Node) -> Any:
    """`node` as JSON-like Python values."""
    match node:
        case Scalar(value=value):
            return value
        case Items(items=items):
            return [plain(item) for item in items]
        case Entries(entries=entries):
            return {key: plain(entry.node) for key, entry in entries.items()}


def from_plain(value: Any, at: Origin) -> Node:
    """JSON-like Python values as nodes that were all written at `at`."""
    match value:
        case dict():
            entries = cast("dict[str, Any]", value)
            return Entries({key: Entry(at, from_plain(below, at)) for key, below in entries.items()}, at)
        case list():
            return Items(tuple(from_plain(item, at) for item in cast("list[Any]", value)), at)
        case _:
            return Scalar(value, at)


def without_nulls(node: Node) -> Node:
    """`node` without the entries whose value is null: such a key is absent."""
    match node:
        case Scalar():
            return node
        case Items(items=items):
            return Items(tuple(map(without_nulls, items)), node.at, node.unique, leads=node.leads)
        case Entries(entries=entries):
            kept = {
                k: Entry(e.key_at, without_nulls(e.node)) for k, e in entries.items() if not is_null(e.node)
            }
            return Entries(kept, node.at)


def places(node: Node, path: str = "") -> Iterator[tuple[str, Origin]]:
    """Every dotted path in `node` with the place its value was written."""
    match node:
        case Scalar():
            pass
        case Items(items=items):
            for index, item in enumerate(items):
                yield f"{path}[{index}]", item.at
                yield from places(item, f"{path}[{index}]")
        case Entries(entries=entries):
            for key, entry in entries.items():
                below = f"{path}.{key}" if path else key
                yield below, entry.key_at
                yield from places(entry.node, below)
