"""Callbacks that others leave to be told of something, and take back when they like."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Watchers(Generic[P]):
    """In the order in which they came. A callback must not block and must not raise."""

    def __init__(self) -> None:
        self._told: dict[object, Callable[P, None]] = {}

    def add(self, callback: Callable[P, None]) -> Callable[[], None]:
        """Have `callback` called by `tell` until the returned function is called."""
        key = object()
        self._told[key] = callback

        def stop() -> None:
            self._told.pop(key, None)

        return stop

    def __iter__(self) -> Iterator[Callable[P, None]]:
        """All that are there now; one that leaves meanwhile may still be called."""
        return iter(tuple(self._told.values()))

    def tell(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for callback in self:
            callback(*args, **kwargs)
