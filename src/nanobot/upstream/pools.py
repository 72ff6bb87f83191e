"""The pools of one installation, and the sessions of clients that hold their connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import anyio
from anyio.abc import TaskStatus

from nanobot.aio import task_group
from nanobot.config.model import McpServer
from nanobot.upstream.connection import Upstream, UpstreamState
from nanobot.upstream.pool import Pool


class Pools(Mapping[str, Pool]):
    """The pools by server name. Told of sessions by whoever serves them (`wire.sessions.Attendance`)."""

    def __init__(
        self,
        servers: Sequence[McpServer],
        connect: Callable[[McpServer, str], Upstream],
        *,
        idle_s: float,
    ) -> None:
        """`connect` makes a connection to a server for an account; `idle_s`: see `Pool`."""
        self._open: Counter[str] = Counter()
        self._sessions: set[tuple[str, str]] = set()
        self._pools = {
            server.name: Pool(
                server,
                lambda account, server=server: connect(server, account),
                holds=self,
                idle_s=idle_s,
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

    def ended(self, account: str, session: str) -> None:
        """The session is over; its connections are closed."""
        if (account, session) in self._sessions:
            self._sessions.remove((account, session))
            self._open[account] -= 1
            if not self._open[account]:
                del self._open[account]
        for pool in self._pools.values():
            pool.end(account, session)

    def is_open(self, account: str, session: str | None) -> bool:
        return self._open[account] > 0 if session is None else (account, session) in self._sessions
