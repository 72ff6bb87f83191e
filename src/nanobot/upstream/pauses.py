"""When to try again to reach a server that could not be reached, or was lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

BACKOFF_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Pauses before the next attempts; the last one repeats."""
STEADY_S: Final = 60.0
"""A connection that lasted this long was a good one: the next pauses are the first again."""


class Pauses:
    """How long to wait before each next attempt.

    The first loss of a connection that worked is met at once; after that, and after failures, pauses grow.
    """

    def __init__(self, backoff_s: Sequence[float]) -> None:
        self._backoff_s = backoff_s
        self._failures = 0

    def after(self, lived_s: float | None) -> float:
        """Seconds to wait after an attempt that was connected for `lived_s`, None: never."""
        if lived_s is not None and lived_s >= STEADY_S:
            self._failures = 0
        pauses = self._backoff_s if lived_s is None else (0.0, *self._backoff_s)
        pause = pauses[min(self._failures, len(pauses) - 1)]
        self._failures += 1
        return pause
