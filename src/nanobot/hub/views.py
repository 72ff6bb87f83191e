"""A list as somebody asked for it, kept until one of its shelves changes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from nanobot.config.model import Config, McpServer
from nanobot.config.places import Reference
from nanobot.hub.catalogue import Catalogue
from nanobot.hub.hidden import hidden_characters
from nanobot.hub.pipeline import shape_tools
from nanobot.hub.published import Listing, Missing, Published
from nanobot.hub.references import Conflict, collect, settle
from nanobot.wire.call import Caller
from nanobot.wire.source import Entry, Kind

log = logging.getLogger(__name__)

WAIT_S: Final = 10.0
"""How long a list waits for a server that has never been listed."""
MOST_SHARED: Final = 256


class Shapes:
    """What each server has after its pipeline, computed once for all who see the same of it."""

    def __init__(self, config: Config, catalogue: Catalogue, servers: Sequence[str]) -> None:
        self.config = config
        self.catalogue = catalogue
        self.servers = frozenset(servers)
        self._shaped: dict[tuple[str, Kind], tuple[tuple[Entry, ...], Mapping[str, Published]]] = {}
        """The last of each; accounts that see different things take turns in it."""
        self._listings: dict[tuple[Kind, tuple[Reference, ...]], Listing] = {}

    def known(self, account: str, server: str, kind: Kind) -> Mapping[str, Published] | Missing:
        """The server's things by final name, as far as the shelf of `account` goes."""
        if server not in self.servers:
            return Missing(server, "not_found", f"There is no MCP server {server!r}.")
        shelf = self.catalogue.shelf(account, server, kind)
        if shelf.entries is None:
            return shelf.missing
        earlier = self._shaped.get((server, kind))
        if earlier is not None and earlier[0] is shelf.entries:
            return earlier[1]
        things = self._shape(server, kind, shelf.entries)
        if kind == "tools":
            _flag_hidden(things, earlier[1] if earlier is not None else {})
        self._shaped[server, kind] = (shelf.entries, things)
        return things

    def shared(self, kind: Kind, references: tuple[Reference, ...], listing: Listing) -> Listing:
        """`listing`, as the object another account has if it sees the same: others key caches by it."""
        latest = self._listings.get((kind, references))
        if latest is not None and latest == listing:
            return latest
        if len(self._listings) >= MOST_SHARED:
            del self._listings[next(iter(self._listings))]
        self._listings[kind, references] = listing
        return listing

    def _shape(self, server: str, kind: Kind, entries: tuple[Entry, ...]) -> Mapping[str, Published]:
        if kind == "tools":
            return shape_tools(self.config.mcp_servers.get(server) or McpServer(name=server), entries)
        return {entry.key: Published(entry.key, server, entry.key, entry.definition) for entry in entries}


def _flag_hidden(tools: Mapping[str, Published], earlier: Mapping[str, Published]) -> None:
    """Warn of tools that are new, or new in this form, and hold characters that nobody sees."""
    for name, tool in tools.items():
        before = earlier.get(name)
        if before is not None and before.definition.raw == tool.definition.raw:
            continue
        if characters := hidden_characters(tool.definition):
            fields = {"server": tool.server, "tool": name, "characters": characters}
            log.warning("a tool's definition holds invisible characters", extra=fields)


class View:
    """One kind of list over fixed references, as one account sees it.

    The same `Listing` object until something in it changed.
    """

    def __init__(self, account: str, kind: Kind, references: Sequence[Reference], shapes: Shapes) -> None:
        self._account = account
        self._kind: Kind = kind
        self._shapes = shapes
        self._catalogue = shapes.catalogue
        self._references = tuple(references)
        self._wanted = settle(references, kind, shapes.config, shapes.servers)
        wanted_servers = dict.fromkeys(want.server for want in self._wanted)
        self._servers = tuple(server for server in wanted_servers if server in shapes.servers)
        self._revision = -1
        self._is_settled = False
        self._listing = Listing()
        self._conflicts: frozenset[Conflict] = frozenset()

    @property
    def is_asked(self) -> bool:
        """Whether there are any references at all."""
        return bool(self._wanted)

    def warm(self, caller: Caller) -> None:
        """Have the shelves filled in the background. `caller` is one of the account."""
        if self._is_settled and self._revision == self._catalogue.revision(self._account, self._kind):
            return
        self._catalogue.warm(caller, self._servers, self._kind)

    def list_anew(self, caller: Caller) -> None:
        """Have the servers asked again in the background; `current` for news waits for that."""
        self._catalogue.list_anew(caller, self._servers, self._kind)

    def known(self) -> Listing:
        """What is there now, without waiting."""
        if self._revision != self._catalogue.revision(self._account, self._kind):
            self._collect()
        return self._listing

    async def current(self, caller: Caller, wait_s: float = WAIT_S, *, for_news: bool = False) -> Listing:
        """What is there after waiting as `Catalogue.wait` does. `caller` is one of the account."""
        if not self._is_settled or self._revision != self._catalogue.revision(self._account, self._kind):
            await self._catalogue.wait(caller, self._servers, self._kind, wait_s, for_news=for_news)
            listing = self.known()
            shelves = (self._catalogue.shelf(self._account, server, self._kind) for server in self._servers)
            self._is_settled = all(shelf.is_settled for shelf in shelves)
            return listing
        if for_news:
            await self._catalogue.wait(caller, self._servers, self._kind, wait_s, for_news=True)
        return self.known()

    def _collect(self) -> None:
        self._revision = self._catalogue.revision(self._account, self._kind)
        self._is_settled = False
        found, missing, conflicts = collect(
            self._wanted, self._kind, lambda server: self._shapes.known(self._account, server, self._kind)
        )
        for conflict in conflicts - self._conflicts:
            fields = {"kind": self._kind, "clash": conflict.name, "kept": conflict.kept}
            log.warning("two servers offer one name", extra=fields | {"dropped": conflict.dropped})
        self._conflicts = conflicts
        listing = Listing(tuple(found.values()), tuple(missing), found)
        self._listing = self._shapes.shared(self._kind, self._references, listing)
