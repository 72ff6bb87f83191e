"""The pools of one installation, and the sessions of clients that hold their connections."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import anyio
from anyio.abc import TaskStatus

from nanobot.aio import task_group
from nanobot.config.model import McpServer, SessionSettings
from nanobot.upstream.connection import Upstream
from nanobot.upstream.pool import Pool
from nanobot.upstream.state import UpstreamState
from nanobot.wire.continuation import Continuation
from nanobot.wire.versions import Era

MOST_PROCESSES: Final = 100
"""Of one server, where its definition says nothing else."""


Connect = Callable[[McpServer, str, Era | None, Continuation | None, bool], Upstream]
"""Makes a connection to a server, for the rest as `pool.Connect`."""


class Pools(Mapping[str, Pool]):
    """The pools by server name. Told of sessions by whoever serves them (`wire.attendance.Attendance`)."""

    def __init__(
        self,
        servers: Sequence[McpServer],
        connect: Connect,
        *,
        sessions: SessionSettings,
        shows_apps: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`connect` makes a connection, kept as long as a session would be. `clock` counts seconds.

        `shows_apps`: our own page shows the user interfaces of tools, which every server is told.
        """
        self._open: Counter[str] = Counter()
        self._sessions: set[tuple[str, str]] = set()
        self._pools = {
            server.name: Pool(
                server,
                functools.partial(connect, server),
                holds=self,
                idle_s=sessions.idle_timeout_s,
                shows_apps=shows_apps,
                most=server.max_connections or (MOST_PROCESSES if server.is_started else sessions.max_live),
                clock=clock,
            )
            for server in servers
        }

    def __getitem__(self, name: str) -> Pool:
        return self._pools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pools)

    def __len__(self) -> int:
        return len(self._pools)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own every connection until cancelled; then they are all closed at the same time."""
        async with task_group() as group:
            for pool in self._pools.values():
                await group.start(pool.run)
            task_status.started()

    def personal(self) -> frozenset[str]:
        """The servers that may show each account something else."""
        return frozenset(name for name, pool in self._pools.items() if pool.is_personal)

    def states(self, account: str | None = None) -> list[UpstreamState]:
        """The state of every server as `account` may know it; None: as it is."""
        return [pool.state(account) for pool in self._pools.values()]

    # Sessions

    def began(self, account: str, session: str) -> None:
        """A client is there: connections of its session, and those it may share, stay open."""
        if (account, session) not in self._sessions:
            self._sessions.add((account, session))
            self._open[account] += 1
            for pool in self._pools.values():
                pool.begin(account, session)

    def ended(self, account: str, session: str, *, is_over: bool = True) -> None:
        """The session is over; its connections are closed.

        With `is_over` False it only leaves this process: sessions at remote servers wait to be continued, so
        ask for the `continuations` first.
        """
        if (account, session) in self._sessions:
            self._sessions.remove((account, session))
            self._open[account] -= 1
            if not self._open[account]:
                del self._open[account]
        for pool in self._pools.values():
            pool.end(account, session, is_over=is_over)

    def continuations(self, account: str, session: str) -> dict[str, Any]:
        """What has to be stored for `continue_with`, by server, as JSON; small, and changed only when a
        connection is opened or its session at the server begins anew."""
        found = {name: pool.continuation(account, session) for name, pool in self._pools.items()}
        return {name: one.to_json() for name, one in found.items() if one is not None}

    def continue_with(self, account: str, session: str, kept: Mapping[str, object]) -> None:
        """Have a session that came back go on with its sessions at remote servers. To be called before the
        first request; what is not understood, or belongs to another address by now, is left out."""
        for name, one in kept.items():
            continuation = Continuation.from_json(one)
            if name in self._pools and continuation is not None:
                self._pools[name].continue_with(account, session, continuation)

    def is_open(self, account: str, session: str | None) -> bool:
        return self._open[account] > 0 if session is None else (account, session) in self._sessions
