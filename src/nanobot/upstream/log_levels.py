"""How much each client wants to hear of a server's log, and so how much is asked of each connection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from nanobot.wire.peer import LEVELS

Key = tuple[str, str]
"""Account and session, as `Pool` has them, of those who share a connection."""


class LogLevels:
    """Of one server. A connection that several share is asked for what the most curious of them wants."""

    def __init__(self) -> None:
        self._wanted: dict[Hashable, tuple[Key, str]] = {}
        self._counts: dict[Key, Counter[str]] = {}

    def want(self, client: Hashable, connection: Key, level: str) -> None:
        """`client` wants to hear of `connection` from `level` on, instead of what it wanted before."""
        self.forget(client)
        self._wanted[client] = (connection, level)
        self._counts.setdefault(connection, Counter())[level] += 1

    def forget(self, client: Hashable) -> Key | None:
        """Which connection is concerned; None if the client had no wish."""
        connection, level = self._wanted.pop(client, (None, ""))
        if connection is not None:
            counts = self._counts[connection]
            counts[level] -= 1
            if not counts[level]:
                del counts[level]
            if not counts:
                del self._counts[connection]
        return connection

    def least(self, connection: Key) -> str | None:
        """The least severe level that somebody wants; None if nobody has said anything."""
        counts = self._counts.get(connection)
        return min(counts, key=LEVELS.index) if counts else None
