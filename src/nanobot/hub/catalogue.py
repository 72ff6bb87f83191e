"""What every server offers, remembered until the server says that it changed.

One shelf per (account, server, kind) is filled by at most one listing at a time, in tasks of the catalogue's
own, so that a reader who gives up disturbs nobody. What is known stays known while a server fails. Servers
that show everybody the same have one shelf for all accounts.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup, TaskStatus

from nanobot.aio import task_group
from nanobot.errors import NanobotError, UpstreamUnavailable
from nanobot.hub.published import Missing
from nanobot.upstream.tried import Tried
from nanobot.wire.call import NOBODY, Caller
from nanobot.wire.rpc import METHOD_NOT_FOUND, RpcError
from nanobot.wire.source import Entry, Kind, Source

log = logging.getLogger(__name__)

FILL_LIMIT_S = 120.0
"""A listing that takes longer (all pages) has failed."""
FILL_SPACING_S = 0.25
"""Shortest time between the starts of two listings of one shelf, however often it is said to change."""
RETRY_SPACING_S = 1.0
"""How long after a failure a reader may cause the next attempt; a server's own news does so at once."""


@dataclass(slots=True, eq=False)
class Shelf:
    """One kind of one server, as one account sees it. `entries` is None until the first answer.

    `caller` is who asked last: it is listed on their behalf. `account` is None if all accounts share it.
    """

    source: Source
    kind: Kind
    account: str | None = None
    caller: Caller = NOBODY
    entries: tuple[Entry, ...] | None = None
    failure: Missing | None = None
    is_stale: bool = True
    is_wanted: bool = False
    filling: anyio.Event | None = None
    started_at: float = -math.inf
    retry_at: float = -math.inf
    spent_s: float = 0.0
    """Time that failed first listings have taken: readers wait for a server once, not at every attempt."""

    tried: Tried = field(default_factory=Tried)
    """What callers had brought along who were refused since the last success."""

    @property
    def is_settled(self) -> bool:
        """Whether a reader needs nothing from the server now."""
        return self.entries is not None and not self.is_stale

    @property
    def missing(self) -> Missing:
        """Why there is nothing to show, while `entries` is None."""
        name = self.source.name
        return self.failure or Missing(name, "pending", f"MCP server {name!r} has not answered yet.")


class Catalogue:
    """The shelves of all `sources`, those named in `personal` for each account by itself.

    `changed(kind, account)` is called whenever a reader would see something new: one of that account, or
    any if it is None.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        changed: Callable[[Kind, str | None], None],
        *,
        personal: Collection[str] = (),
    ) -> None:
        self._sources = sources
        self._changed = changed
        self._personal = frozenset(personal)
        self._shelves: dict[tuple[str | None, str, Kind], Shelf] = {}
        self._latest: dict[tuple[str, Kind], tuple[Entry, ...]] = {}
        self._revisions: dict[tuple[str | None, Kind], int] = {}
        self._forgotten = 0  # no revision of an account that was forgotten is higher
        self._next_revision = itertools.count(1)
        self._group: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the listings. Until this runs nothing can be filled; cancel it to stop."""
        with ExitStack() as watches:
            for name, source in self._sources.items():
                watches.callback(source.watch(functools.partial(self._invalidate, name)))
            async with task_group() as group:
                self._group = group
                watches.callback(self._close)
                task_status.started()
                await anyio.sleep_forever()

    def revision(self, account: str, kind: Kind) -> int:
        """A number that is higher whenever a shelf `account` sees was filled differently or not at all."""
        revisions = self._revisions
        return max(revisions.get((account, kind), self._forgotten), revisions.get((None, kind), 0))

    def shelf(self, account: str, server: str, kind: Kind) -> Shelf:
        """The shelf as it is now. `server` must be one of the sources."""
        owner = account if server in self._personal else None
        shelf = self._shelves.get((owner, server, kind))
        if shelf is None:
            shelf = self._shelves[owner, server, kind] = Shelf(self._sources[server], kind, owner)
        return shelf

    def forget(self, account: str) -> None:
        """Drop what only `account` sees. It is listed anew if somebody asks again."""
        for key in [key for key in self._shelves if key[0] == account]:
            del self._shelves[key]
            self._revisions.pop((account, key[2]), None)
        self._forgotten = next(self._next_revision)

    def warm(self, caller: Caller, servers: Iterable[str], kind: Kind) -> None:
        """Have the shelves that `caller` sees filled, in the background."""
        now = anyio.current_time()
        for server in servers:
            shelf = self.shelf(caller.account, server, kind)
            shelf.is_wanted = True
            if shelf.account is not None:
                if shelf.failure is not None and shelf.failure.for_caller and shelf.tried.note(caller.values):
                    shelf.retry_at = -math.inf  # this caller may bring what the last one lacked
                shelf.caller = caller
            if shelf.is_stale and now >= shelf.retry_at:
                self._start(shelf)

    async def wait(
        self, caller: Caller, servers: Iterable[str], kind: Kind, wait_s: float, *, for_news: bool = False
    ) -> None:
        """Wait until every shelf is known, at most `wait_s` seconds for each server since it was first asked.

        A server that is known never makes a reader wait, unless it is `for_news` and a listing is due.
        """
        servers = tuple(servers)
        self.warm(caller, servers, kind)
        for server in servers:
            shelf = self.shelf(caller.account, server, kind)
            if shelf.filling is not None and (shelf.entries is None or for_news):
                deadline = shelf.started_at + max(0.0, wait_s - shelf.spent_s)
                with anyio.CancelScope(deadline=deadline):
                    await shelf.filling.wait()

    def list_anew(self, caller: Caller, servers: Iterable[str], kind: Kind) -> None:
        """Have the shelves that `caller` sees filled again, in the background, whether or not it is due."""
        for server in servers:
            shelf = self.shelf(caller.account, server, kind)
            if shelf.filling is None:
                shelf.is_stale, shelf.retry_at = True, -math.inf
        self.warm(caller, servers, kind)

    def _invalidate(self, server: str, kind: Kind, account: str) -> None:
        shelf = self.shelf(account, server, kind)
        shelf.is_stale = True
        shelf.retry_at = -math.inf
        if shelf.is_wanted:
            self._start(shelf)

    def _start(self, shelf: Shelf) -> None:
        if shelf.filling is not None:
            return  # it looks at `is_stale` when it ends
        if self._group is None:
            raise RuntimeError("nothing can be listed: Hub.run is not running")
        pause_s = shelf.started_at + FILL_SPACING_S - anyio.current_time()
        shelf.started_at = anyio.current_time()
        shelf.filling = anyio.Event()
        self._group.start_soon(self._fill, shelf, pause_s)

    async def _fill(self, shelf: Shelf, pause_s: float) -> None:
        try:
            if pause_s > 0:
                await anyio.sleep(pause_s)
            shelf.is_stale = False
            shelf.tried.note(shelf.caller.values)
            outcome = await _listing(shelf)
            self._put(shelf, outcome)
        finally:
            if shelf.filling is not None:
                shelf.filling.set()
            shelf.filling = None
        if shelf.is_stale and shelf.retry_at == -math.inf:  # it changed while it was listed
            self._start(shelf)

    def _put(self, shelf: Shelf, outcome: tuple[Entry, ...] | Missing) -> None:
        if isinstance(outcome, Missing):
            now = anyio.current_time()
            if not shelf.is_stale:
                shelf.is_stale = True
                shelf.retry_at = now + RETRY_SPACING_S
            shelf.spent_s += now - shelf.started_at
            is_first = shelf.failure is None or shelf.failure.code != outcome.code
            if is_first:  # once per kind of trouble, not once per attempt
                fields = {"server": outcome.server, "kind": shelf.kind, "reason": outcome.message}
                log.warning("a server's list is not available", extra=fields)
            self._revise(shelf)  # readers must learn to ask again
            is_news = is_first and shelf.entries is None
            shelf.failure = outcome
        else:
            is_news = shelf.entries is None or not _same(shelf.entries, outcome)
            if is_news:
                shelf.entries = self._shared(shelf, outcome)
                self._revise(shelf)
            shelf.failure = None
            shelf.spent_s = 0.0
            shelf.tried.clear()
        if is_news:
            self._changed(shelf.kind, shelf.account)

    def _revise(self, shelf: Shelf) -> None:
        if self._shelves.get((shelf.account, shelf.source.name, shelf.kind)) is shelf:
            self._revisions[shelf.account, shelf.kind] = next(self._next_revision)

    def _shared(self, shelf: Shelf, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """`entries`, as the object another account has if it sees the same: most servers tell none apart."""
        key = shelf.source.name, shelf.kind
        latest = self._latest.get(key)
        if latest is not None and _same(latest, entries):
            return latest
        self._latest[key] = entries
        return entries

    def _close(self) -> None:
        self._group = None


async def _listing(shelf: Shelf) -> tuple[Entry, ...] | Missing:
    """Ask the source. This is where one server's trouble, whatever it is, ends."""
    source, kind = shelf.source, shelf.kind
    try:
        with anyio.fail_after(FILL_LIMIT_S):
            entries = tuple(await source.listing(kind, shelf.caller))
        for entry in entries:
            _ = entry.definition.raw  # what cannot be encoded is this server's trouble, here and now
        return entries
    except RpcError as e:
        if e.rpc_code == METHOD_NOT_FOUND:
            return ()
        failure = Missing(source.name, e.code, f"MCP server {source.name!r} refused to list {kind}: {e}")
    except NanobotError as e:
        for_caller = isinstance(e, UpstreamUnavailable) and e.for_caller
        failure = Missing(source.name, e.code, str(e), for_caller)
    except TimeoutError:
        message = f"MCP server {source.name!r} did not list its {kind} within {FILL_LIMIT_S:g} s."
        failure = Missing(source.name, "upstream.timeout", message)
    except Exception:
        log.exception("listing failed", extra={"server": source.name, "kind": kind})
        message = f"MCP server {source.name!r} could not list its {kind}: internal error."
        failure = Missing(source.name, "internal", message)
    return failure


def _same(before: tuple[Entry, ...], after: tuple[Entry, ...]) -> bool:
    return len(before) == len(after) and all(
        a.key == b.key and a.definition.raw == b.definition.raw for a, b in zip(before, after, strict=True)
    )
