"""Which server was asked to tell of a resource: whoever stops following it turns to that one again."""

from __future__ import annotations

from collections import Counter


class Followed:
    """Counts alone. Who follows what is known where clients are."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], tuple[str, int]] = {}
        self._told: Counter[tuple[str, str]] = Counter()

    def owner(self, account: str, uri: str) -> str | None:
        """The server that tells `account` of `uri`."""
        known = self._owners.get((account, uri))
        return known[0] if known is not None else None

    def begin(self, account: str, uri: str, server: str) -> None:
        """One follower more; all of one account stay with the server that the first one found."""
        owner, users = self._owners.get((account, uri), (server, 0))
        self._owners[account, uri] = (owner, users + 1)
        self._told[owner, uri] += 1

    def end(self, account: str, uri: str) -> None:
        known = self._owners.get((account, uri))
        if known is None:
            return
        owner, users = known
        if users > 1:
            self._owners[account, uri] = (owner, users - 1)
        else:
            del self._owners[account, uri]
        self._told[owner, uri] -= 1
        if not self._told[owner, uri]:
            del self._told[owner, uri]

    def is_told(self, server: str, uri: object) -> bool:
        """Whether anybody follows `uri` of `server`."""
        return isinstance(uri, str) and (server, uri) in self._told
