"""Work that only one process may do at a time: whoever holds the lease of a name does it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from nanobot.store.database import Database


class Leases:
    """Leases by name. One that was not given back ends by itself, so a crash blocks nobody for long.

    Holders must be done well before their time is over: nothing stops one who is late.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def take(self, name: str, holder: str, *, for_s: float) -> bool:
        """Whether `holder` has the lease now, for `for_s` seconds. Never waits for another holder."""
        from sqlalchemy import delete, insert, select

        from nanobot.store.schema import leases

        now = self._clock()

        def take(connection: Connection) -> bool:
            connection.execute(delete(leases).where(leases.c.name == name, leases.c.until <= now))
            taken = connection.execute(select(leases.c.holder).where(leases.c.name == name)).scalar()
            if taken is None:
                connection.execute(insert(leases).values(name=name, holder=holder, until=now + for_s))
            return taken in (None, holder)

        return await self._database.write(take)

    async def give_back(self, name: str, holder: str) -> None:
        """End the lease if `holder` still has it."""
        from sqlalchemy import delete

        from nanobot.store.schema import leases

        await self._database.write(
            lambda c: c.execute(delete(leases).where(leases.c.name == name, leases.c.holder == holder))
        )
