"""What we gave out ourselves: logins, codes, tokens, registered clients. Secrets are known by hash only."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nanobot.store.sealing import CannotOpen, Sealer

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

    from nanobot.store.database import Database

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """One thing that was given out. `kind` and `id` name it; `id` is a hash wherever the thing is a secret.

    `owner`: what it belongs to, "" for nothing; removing the owner removes it. `expires`: seconds since the
    epoch. `body` is sealed at rest. `used`: it has been spent, and is kept to notice a second use, or
    to know it from those that nobody needed.
    """

    kind: str
    id: str
    expires: int
    owner: str = ""
    body: bytes = b""
    used: bool = False


class Credentials:
    """The repository of credentials. Expired ones do not exist. Every method may raise `StoreError`.

    One that cannot be opened (its key is gone) counts as absent. `sealer` may block; it is called in the
    threads of the database.
    """

    def __init__(
        self, database: Database, sealer: Callable[[], Sealer], clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._sealer = sealer
        self._clock = clock

    async def find(self, kind: str, id: str) -> Credential | None:
        return await self._database.read(lambda c: self._find(c, kind, id))

    async def put(self, *credentials: Credential) -> None:
        """Keep all of them or none, each in place of one with its kind and id."""
        await self._database.write(lambda c: self._put(c, credentials))

    async def spend(self, kind: str, id: str) -> Credential | None:
        """Use it up. `used` of the answer: whether somebody had done so before. Only one is the first."""

        def spend(connection: Connection) -> Credential | None:
            from sqlalchemy import update

            table = _table()
            found = self._find(connection, kind, id)
            if found is not None and not found.used:
                this = (table.c.kind == kind) & (table.c.id == id)
                connection.execute(update(table).where(this).values(used=1))
            return found

        return await self._database.write(spend)

    async def renew(self, kind: str, id: str, *, expires: int) -> None:
        """Let it live until `expires`, if it is still there."""

        def renew(connection: Connection) -> None:
            from sqlalchemy import update

            table = _table()
            this = (table.c.kind == kind) & (table.c.id == id)
            connection.execute(update(table).where(this).values(expires=expires))

        await self._database.write(renew)

    async def rewrite(self, kind: str, id: str, body: bytes) -> None:
        """Give it another body, if it is still there."""

        def rewrite(connection: Connection) -> None:
            if (found := self._find(connection, kind, id)) is not None:
                self._put(connection, [replace(found, body=body)])

        await self._database.write(rewrite)

    async def remove(self, kind: str, id: str) -> None:
        from sqlalchemy import delete

        table = _table()
        query = delete(table).where(table.c.kind == kind, table.c.id == id)
        await self._database.write(lambda c: c.execute(query))

    async def remove_owned(self, owner: str) -> None:
        """Remove everything that belongs to `owner`."""
        from sqlalchemy import delete

        table = _table()
        query = delete(table).where(table.c.owner == owner)
        await self._database.write(lambda c: c.execute(query))

    async def make_room(self, kind: str, *, most: int) -> bool:
        """Remove unused ones of `kind`, the first to expire first, until there are fewer than `most`.

        False if there are as many used ones: those stay.
        """

        def make_room(connection: Connection) -> bool:
            from sqlalchemy import delete, func, select

            table = _table()
            those = (table.c.kind == kind) & (table.c.expires > self._now())
            count = connection.execute(select(func.count()).where(those)).scalar_one()
            if (excess := count - most + 1) <= 0:
                return True
            unused = select(table.c.id).where(those, table.c.used == 0).order_by(table.c.expires)
            ids = connection.execute(unused.limit(excess)).scalars().all()
            for id in ids:
                connection.execute(delete(table).where(table.c.kind == kind, table.c.id == id))
            return len(ids) == excess

        return await self._database.write(make_room)

    async def purge(self) -> None:
        """Remove what has expired."""
        from sqlalchemy import delete

        table = _table()
        query = delete(table).where(table.c.expires <= self._now())
        await self._database.write(lambda c: c.execute(query))

    def _now(self) -> int:
        return int(self._clock())

    def _find(self, connection: Connection, kind: str, id: str) -> Credential | None:
        from sqlalchemy import select

        table = _table()
        query: Select[Any] = select(table).where(
            table.c.kind == kind, table.c.id == id, table.c.expires > self._now()
        )
        row = connection.execute(query).mappings().first()
        if row is None:
            return None
        try:
            body = self._sealer().open(row["body"], _place(kind, id))
        except CannotOpen as e:
            log.warning("a stored credential is not usable", extra={"kind": kind, "reason": str(e)})
            return None
        return Credential(
            kind=kind, id=id, expires=row["expires"], owner=row["owner"], body=body, used=bool(row["used"])
        )

    def _put(self, connection: Connection, credentials: tuple[Credential, ...] | list[Credential]) -> None:
        from sqlalchemy import delete, insert

        table = _table()
        for one in credentials:
            connection.execute(delete(table).where(table.c.kind == one.kind, table.c.id == one.id))
            body = self._sealer().seal(one.body, _place(one.kind, one.id))
            connection.execute(
                insert(table).values(
                    kind=one.kind,
                    id=one.id,
                    owner=one.owner,
                    body=body,
                    used=int(one.used),
                    expires=one.expires,
                )
            )


def _place(kind: str, id: str) -> bytes:
    """What a sealed body belongs to: it opens in no other row."""
    return f"{kind}\n{id}".encode()


def _table() -> Any:
    from nanobot.store.schema import credentials

    return credentials
