"""Which era of the protocol servers spoke, so that nobody has to find out again after a restart."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from nanobot.store.database import Database

REMEMBERED_S: Final = 7 * 24 * 3600


class Eras:
    """The verdict about each definition of a server, for a week. Every method may raise `StoreError`."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def find(self, definition: str) -> str | None:
        """What a server with this digest of its definition spoke; None if that is not known, or too old."""
        from sqlalchemy import select

        from nanobot.store.schema import eras

        query = select(eras.c.era).where(eras.c.definition == definition, eras.c.until > self._clock())
        return await self._database.read(lambda c: c.execute(query).scalar())

    async def save(self, definition: str, era: str) -> None:
        """Remember it from now on; what is too old is forgotten."""
        from sqlalchemy import delete, insert, or_

        from nanobot.store.schema import eras

        now = self._clock()

        def save(connection: Connection) -> None:
            connection.execute(delete(eras).where(or_(eras.c.definition == definition, eras.c.until <= now)))
            connection.execute(insert(eras).values(definition=definition, era=era, until=now + REMEMBERED_S))

        await self._database.write(save)
