"""Calls whose MCP clients come back for the result, kept until a while after they ended."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from nanobot.store.database import Database

MOST_KEPT: Final = 1000
"""Tasks of one account that are kept at most; those whose time ends first go first."""

MOST_BYTES: Final = 128 * 1024 * 1024
"""What the tasks of one account take together; beyond that, those whose time ends first go."""


class McpTasks:
    """The repository of tasks. Every method may raise `StoreError`."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def find(self, id: str, account: str) -> tuple[str, bytes] | None:
        """The process that wrote the task last, and its state; a task of another account is none."""
        from sqlalchemy import select

        table = _table()
        query = select(table.c.process, table.c.state).where(
            table.c.id == id, table.c.account == account, table.c.until > int(self._clock())
        )

        def find(connection: Connection) -> tuple[str, bytes] | None:
            row = connection.execute(query).first()
            return None if row is None else (row.process, row.state)

        return await self._database.read(find)

    async def save(self, id: str, account: str, process: str, state: bytes, until: float) -> None:
        """Write the task, in place of what was written of it before; `until` counts since the epoch.

        What nobody can ask for any more is removed on the same occasion.
        """
        from sqlalchemy import delete, func, insert, select

        table = _table()
        kept = {"account": account, "process": process, "state": state, "until": math.ceil(until)}
        sizes = (
            select(table.c.id, func.length(table.c.state))
            .where(table.c.account == account, table.c.id != id)
            .order_by(table.c.until.desc())
        )

        def save(connection: Connection) -> None:
            connection.execute(delete(table).where(table.c.id == id))
            connection.execute(insert(table).values(id=id, **kept))
            connection.execute(delete(table).where(table.c.until <= int(self._clock())))
            size = len(state)
            for place, (other, length) in enumerate(connection.execute(sizes).all(), 2):
                size += length
                if place > MOST_KEPT or size > MOST_BYTES:
                    connection.execute(delete(table).where(table.c.id == other))

        await self._database.write(save)


def _table() -> Any:
    from nanobot.store.schema import mcp_tasks

    return mcp_tasks
