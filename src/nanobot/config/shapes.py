"""What a value may look like: small shapes that check a node and bring it into its one normal form.

A shape answers with the normalised node, or None after reporting to `place` why the value is unusable.
Rejected values are never repeated unless the key takes one of a few fixed words: they may be secrets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from nanobot.config.diagnostics import Place
from nanobot.config.merge import distinct
from nanobot.config.nodes import Entries, Entry, Items, Node, Scalar, is_null, kind_of, shown_key
from nanobot.config.places import Origin
from nanobot.distance import edit_distance

REPLACE = "$replace"
DURATION = r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h)"
"""A time as text: how much, and of what."""


class Shape(Protocol):
    def accept(self, node: Node, place: Place) -> Node | None: ...


def accept(shape: Shape, node: Node, place: Place) -> Node | None:
    """`shape.accept`, after what any value may be: null (deletes on merging) or `{$replace: value}`."""
    if is_null(node):
        return node
    if isinstance(node, Entries) and list(node.entries) == [REPLACE]:
        inner = accept(shape, node.entries[REPLACE].node, place)
        return inner if inner is None or isinstance(inner, Scalar) else replace(inner, replaces=True)
    return shape.accept(node, place)


@dataclass(frozen=True, slots=True)
class Text:
    """Text. `words`: the only ones allowed; `pattern` must match all of it, `expected` says so to people."""

    words: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    expected: str = ""

    def accept(self, node: Node, place: Place) -> Node | None:
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            return _wrong(node, place, "text")
        if self.words and node.value not in self.words:
            word = f"{node.value!r} is" if len(node.value) <= 40 else "This is"
            place.error("bad-value", node.at, f"{word} not one of {_listed(self.words)}.")
            return None
        if self.pattern and not self.pattern.fullmatch(node.value):
            place.error("bad-value", node.at, f"This is not {self.expected}.")
            return None
        return node


@dataclass(frozen=True, slots=True)
class Flag:
    def accept(self, node: Node, place: Place) -> Node | None:
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return node
        hint = "write true or false" if isinstance(node, Scalar) else ""
        return _wrong(node, place, "true or false", hint)


@dataclass(frozen=True, slots=True)
class Number:
    """A number within `low` and `high`, both included. `whole`: an integer."""

    low: float = -math.inf
    high: float = math.inf
    whole: bool = False

    def accept(self, node: Node, place: Place) -> Node | None:
        kind = "a whole number" if self.whole else "a number"
        if (
            not isinstance(node, Scalar)
            or not isinstance(node.value, int | float)
            or isinstance(node.value, bool)
        ):
            hint = (
                "write it without quotes" if isinstance(node, Scalar) and isinstance(node.value, str) else ""
            )
            return _wrong(node, place, kind, hint)
        if self.whole and node.value != int(node.value):
            return _wrong(node, place, kind)
        if not self.low <= node.value <= self.high:
            bounds = [f"at least {self.low:g}"] * (self.low > -math.inf) + [f"at most {self.high:g}"] * (
                self.high < math.inf
            )
            place.error("bad-value", node.at, f"{node.value:g} is out of range: {' and '.join(bounds)}.")
            return None
        return Scalar(int(node.value), node.at) if self.whole else node


@dataclass(frozen=True, slots=True)
class Duration:
    """A time in seconds: a number, or text such as `500ms`, `90s`, `15m`, `2h`. Normal form: seconds."""

    low: float = 0.0
    high: float = 7 * 24 * 3600.0

    def accept(self, node: Node, place: Place) -> Node | None:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            match = re.fullmatch(DURATION, node.value.strip())
            if match is None:
                place.error(
                    "bad-value",
                    node.at,
                    "This is not a duration; write seconds, or `500ms`, `90s`, `15m`, `2h`.",
                )
                return None
            node = Scalar(float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[match[2]], node.at)
        return Number(self.low, self.high).accept(node, place)


@dataclass(frozen=True, slots=True)
class Names:
    """A list of non-empty texts, or one text that is cut at commas unless `split` is false.

    `unique`: repeating a name has no meaning, so later ones fall away, also when documents merge.
    """

    unique: bool = True
    split: bool = True
    words: tuple[str, ...] = ()

    def accept(self, node: Node, place: Place) -> Node | None:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            parts = [part.strip() for part in node.value.split(",")] if self.split else [node.value]
            node = Items(tuple(Scalar(part, node.at) for part in parts if part), node.at)
        if not isinstance(node, Items):
            return _wrong(node, place, "a list of texts, or one text")
        items: list[Node] = []
        for index, item in enumerate(node.items):
            accepted = Text(self.words).accept(item, place.item(index))
            if isinstance(accepted, Scalar):
                if accepted.value == "" and self.unique:
                    place.item(index).error("bad-value", item.at, "A name must not be empty.")
                else:
                    items.append(accepted)
        return Items(
            distinct(tuple(items)) if self.unique else tuple(items), node.at, self.unique, node.replaces
        )


@dataclass(frozen=True)
class Table:
    """A mapping with known keys. `short`: the key that a bare text stands for; `aliases`: other names."""

    keys: Mapping[str, Shape]
    short: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])

    @cached_property
    def _spellings(self) -> dict[str, str]:
        names = {**{key: key for key in self.keys}, **self.aliases}
        return {spelling: key for name, key in names.items() for spelling in spellings(name)}

    def accept(self, node: Node, place: Place) -> Node | None:
        if self.short and isinstance(node, Scalar) and isinstance(node.value, str):
            return Entries({self.short: Entry(node.at, node)}, node.at)
        if not isinstance(node, Entries):
            return _wrong(
                node, place, f"a mapping, or text (its {self.short})" if self.short else "a mapping"
            )
        accepted: dict[str, Entry] = {}
        seen: dict[str, tuple[str, Origin]] = {}
        for written, entry in node.entries.items():
            key = self._spellings.get(written)
            if key is None:
                self._unknown(written, entry, place.key(written))
                continue
            if key in seen:
                first, at = seen[key]
                place.key(key).error(
                    "duplicate-key",
                    entry.key_at,
                    f"{written!r} is {first!r} in another spelling, which is written on line {at.line}.",
                    "keep one of them",
                )
                continue
            seen[key] = (written, entry.key_at)
            value = accept(self.keys[key], entry.node, place.key(key))
            if value is not None:
                accepted[key] = Entry(entry.key_at, value)
        return Entries(accepted, node.at, node.replaces)

    def _unknown(self, written: str, entry: Entry, place: Place) -> None:
        near = nearest(written, self._spellings)
        hint = f"did you mean {near!r}?" if near else f"known keys: {', '.join(sorted(self.keys))}"
        place.error("unknown-key", entry.key_at, f"The key {shown_key(written)} is not known here.", hint)


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping whose keys a person chose. `check_key` may report a key that cannot be used."""

    shape: Shape
    check_key: Callable[[str, Origin, Place], None] | None = None

    def accept(self, node: Node, place: Place) -> Node | None:
        if not isinstance(node, Entries):
            return _wrong(node, place, "a mapping")
        accepted: dict[str, Entry] = {}
        for key, entry in node.entries.items():
            if self.check_key:
                self.check_key(key, entry.key_at, place.key(key))
            value = accept(self.shape, entry.node, place.key(key))
            if value is not None:
                accepted[key] = Entry(entry.key_at, value)
        return Entries(accepted, node.at, node.replaces)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of anything that has a shape. `leads`: laid over another such list it comes first."""

    shape: Shape
    leads: bool = False

    def accept(self, node: Node, place: Place) -> Node | None:
        if not isinstance(node, Items):
            return _wrong(node, place, "a list")
        accepted = (accept(self.shape, item, place.item(i)) for i, item in enumerate(node.items))
        items = tuple(a for a in accepted if a is not None)
        return Items(items, node.at, replaces=node.replaces, leads=self.leads)


@dataclass(frozen=True, slots=True)
class Free:
    """Any JSON mapping, kept as it is, nulls included."""

    def accept(self, node: Node, place: Place) -> Node | None:
        return _keeping_nulls(node) if isinstance(node, Entries) else _wrong(node, place, "a mapping")


@dataclass(frozen=True, slots=True)
class TextOr:
    """Text, or else `other`. `said` names `other` to people."""

    other: Shape
    said: str

    def accept(self, node: Node, place: Place) -> Node | None:
        if isinstance(node, Scalar):
            return node if isinstance(node.value, str) else _wrong(node, place, f"text, or {self.said}")
        return self.other.accept(node, place)


@dataclass(frozen=True, slots=True)
class Later:
    """A shape that is defined further down, for shapes that contain themselves."""

    shape: Callable[[], Shape]

    def accept(self, node: Node, place: Place) -> Node | None:
        return self.shape().accept(node, place)


@dataclass(frozen=True, slots=True)
class Ignored:
    """A key that is accepted without effect; `why` (if any) is said in a warning."""

    why: str = ""

    def accept(self, node: Node, place: Place) -> Node | None:
        if self.why:
            place.warning("ignored-key", node.at, self.why)
        return None


def spellings(key: str) -> set[str]:
    """The equivalent spellings of a canonical key: `baseURL`, `baseUrl`, `base_url`, `base-url`."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower()
    head, *rest = snake.split("_")
    return {key, snake, snake.replace("_", "-"), head + "".join(map(str.capitalize, rest))}


def nearest(word: str, known: Mapping[str, str]) -> str:
    """The value of `known` whose key is nearest to `word`, "" if none is within an edit distance of 2."""
    best, name = 3, ""
    for spelling, canonical in known.items():
        distance = edit_distance(word.lower(), spelling.lower(), best)
        if distance < best and distance < len(spelling):
            best, name = distance, canonical
    return name


def _keeping_nulls(node: Node) -> Node:
    match node:
        case Scalar(value=None):
            return replace(node, kept=True)
        case Scalar():
            return node
        case Items(items=items):
            return replace(node, items=tuple(map(_keeping_nulls, items)))
        case Entries(entries=entries):
            if list(entries) == [REPLACE]:
                inner = _keeping_nulls(entries[REPLACE].node)
                return inner if isinstance(inner, Scalar) else replace(inner, replaces=True)
            return replace(
                node, entries={k: Entry(e.key_at, _keeping_nulls(e.node)) for k, e in entries.items()}
            )


def _wrong(node: Node, place: Place, expected: str, hint: str = "") -> None:
    if not hint and expected.startswith(("text", "a list of texts")) and isinstance(node, Scalar):
        hint = "put the value in quotes"
    place.error("wrong-type", node.at, f"Expected {expected}, found {kind_of(node)}.", hint)


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(word or '""' for word in words)
