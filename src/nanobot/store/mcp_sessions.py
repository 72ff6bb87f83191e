"""The sessions of MCP clients, kept while nobody uses them and across restarts."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nanobot.store.processes import Processes

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from nanobot.store.database import Database

KEPT_S: Final = 7 * 24 * 3600
"""How long a session is kept that nobody uses."""
MOST_KEPT: Final = 100_000
"""Rows that are kept at most; those that were not used for longest go first."""

_AT_ONCE: Final = 500
"""Values in one statement: SQLite takes a limited number of them."""


class McpSessionRow(NamedTuple):
    """One session. `revision` rises with every save; `state` is opaque here."""

    id: str
    account: str
    revision: int
    state: bytes


class McpSessions:
    """The repository of MCP sessions. Every method but `is_shared` may raise `StoreError`."""

    def __init__(
        self, database: Database, processes: Processes, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._processes = processes
        self._clock = clock

    def is_shared(self) -> bool:
        """Whether other processes may serve these sessions now."""
        return self._processes.has_company()

    async def find(self, id: str, account: str) -> McpSessionRow | None:
        """The session with this id; one of another account is none."""
        from sqlalchemy import select

        table = _table()
        columns = (table.c.id, table.c.account, table.c.revision, table.c.state)
        query = select(*columns).where(table.c.id == id, table.c.account == account)

        def find(connection: Connection) -> McpSessionRow | None:
            row = connection.execute(query).first()
            return None if row is None else McpSessionRow(*row)

        return await self._database.read(find)

    async def missing(self, ids: Collection[str]) -> set[str]:
        """Which of `ids` have no row."""
        from sqlalchemy import select

        table = _table()
        asked = list(ids)

        def read(connection: Connection) -> set[str]:
            found: set[str] = set()
            for start in range(0, len(asked), _AT_ONCE):
                some = asked[start : start + _AT_ONCE]
                found.update(connection.execute(select(table.c.id).where(table.c.id.in_(some))).scalars())
            return set(asked) - found

        return await self._database.read(read)

    async def save(self, rows: Sequence[tuple[str, str, int, bytes]]) -> list[bool]:
        """Write sessions, each under the revision after the one it names; 0 names one that has no row yet.

        False for each that has another revision by now, or is gone: it is left as it is.
        """
        used = int(self._clock())

        def save(connection: Connection) -> list[bool]:
            return [
                connection.exec_driver_sql(
                    _UPDATE if revision else _INSERT,
                    {"id": id, "account": account, "revision": revision, "state": state, "used": used},
                ).rowcount
                > 0
                for id, account, revision, state in rows
            ]

        return await self._database.write(save)

    async def delete(self, id: str, account: str) -> bool:
        """Forget the session; whether there was one."""
        from sqlalchemy import delete

        table = _table()
        deletion = delete(table).where(table.c.id == id, table.c.account == account)
        return await self._database.write(lambda c: c.execute(deletion).rowcount > 0)

    async def prune(self) -> None:
        """Forget what was not used for `KEPT_S`, and the oldest beyond `MOST_KEPT`."""
        from sqlalchemy import delete, select

        table = _table()
        old = delete(table).where(table.c.used < int(self._clock()) - KEPT_S)
        newest = select(table.c.id).order_by(table.c.used.desc()).limit(-1).offset(MOST_KEPT)
        surplus = delete(table).where(table.c.id.in_(newest))

        def prune(connection: Connection) -> None:
            connection.execute(old)
            connection.execute(surplus)

        await self._database.write(prune)


# As text: building a statement takes longer than running it, and thousands of rows come at once.
_INSERT: Final = (
    "INSERT OR IGNORE INTO mcp_sessions (id, account, revision, state, used) "
    "VALUES (:id, :account, 1, :state, :used)"
)
_UPDATE: Final = (
    "UPDATE mcp_sessions SET revision = revision + 1, state = :state, used = :used "
    "WHERE id = :id AND account = :account AND revision = :revision"
)


def _table() -> Any:
    from nanobot.store.schema import mcp_sessions

    return mcp_sessions
