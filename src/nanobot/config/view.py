"""Reading values out of a normalised document: types are already right, only absence is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from nanobot.config.diagnostics import Place
from nanobot.config.nodes import Entries, Entry, Items, Node, Scalar, plain
from nanobot.config.places import Origin

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class View:
    """One mapping of the document and the place it is at. `at` is where its key stands."""

    node: Entries
    at: Origin
    place: Place

    def has(self, key: str) -> bool:
        return key in self.node.entries

    def origin(self, key: str) -> Origin:
        """Where the value of `key` stands; of an absent key, where this mapping does."""
        return self.node.entries[key].node.at if key in self.node.entries else self.at

    def value(self, key: str, default: Any = None) -> Any:
        node = self._node(key)
        return default if node is None else plain(node)

    def text(self, key: str, default: str = "") -> str:
        return self.value(key, default)

    def under(self, key: str) -> View:
        """The mapping at `key`; an empty one if it is absent."""
        entry = self.node.entries.get(key)
        if entry is None or not isinstance(entry.node, Entries):
            return View(Entries({}, self.at), self.at, self.place.key(key))
        return View(entry.node, entry.key_at, self.place.key(key))

    def each(self) -> Iterator[tuple[str, View]]:
        """The mappings below this one, by key, in the order written."""
        for key, entry in self.node.entries.items():
            if isinstance(entry.node, Entries):
                yield key, View(entry.node, entry.key_at, self.place.key(key))

    def mappings(self, key: str) -> Iterator[View]:
        """The mappings of a list."""
        node = self._node(key)
        for index, item in enumerate(node.items if isinstance(node, Items) else ()):
            if isinstance(item, Entries):
                yield View(item, item.at, self.place.key(key).item(index))

    def entries(self, key: str) -> dict[str, Entry]:
        return self.under(key).node.entries

    def names(self, key: str) -> tuple[str, ...]:
        return tuple(name for name, _, _ in self.items(key))

    def items(self, key: str) -> Iterator[tuple[str, Origin, Place]]:
        """The texts of a list, each with its place."""
        node = self._node(key)
        if isinstance(node, Items):
            for index, item in enumerate(node.items):
                if isinstance(item, Scalar):
                    yield str(item.value), item.at, self.place.key(key).item(index)

    def references(self, key: str, read: Callable[[str, Origin, Place], T | None]) -> tuple[T, ...]:
        """The list at `key`, each item read by `read`, without those it refused."""
        read_items = (read(*item) for item in self.items(key))
        return tuple(item for item in read_items if item is not None)

    def _node(self, key: str) -> Node | None:
        entry = self.node.entries.get(key)
        return entry.node if entry else None
