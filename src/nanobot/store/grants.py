"""What authorization servers gave us: client registrations and tokens, sealed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nanobot.store.rows import GrantRow
from nanobot.store.sealing import CannotOpen, Sealer

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    from nanobot.store.database import Database

log = logging.getLogger(__name__)


class Grants:
    """The repository of grants: at most one for an account and a server. Nothing in it is readable at rest.

    A grant that cannot be opened (its key is gone) counts as absent, with a warning, and stays where it is.
    `sealer` may block; it is called in the threads of the database. Every method may raise `StoreError`.
    """

    def __init__(self, database: Database, clock: Callable[[], str], sealer: Callable[[], Sealer]) -> None:
        self._database = database
        self._clock = clock
        self._sealer = sealer

    async def find(self, *, server: str, account: str = "") -> GrantRow | None:
        """The grant of `account` for the server with this URL."""
        from sqlalchemy import select

        from nanobot.store.schema import grants

        query = select(grants).where(grants.c.server == server, grants.c.account == account)

        def find(connection: Connection) -> GrantRow | None:
            row = connection.execute(query.order_by(grants.c.updated.desc()).limit(1)).first()
            return None if row is None else self._opened(row)

        return await self._database.read(find)

    async def all(self) -> Sequence[GrantRow]:
        """Every grant that can be opened."""
        from sqlalchemy import select

        from nanobot.store.schema import grants

        def read(connection: Connection) -> list[GrantRow]:
            rows = connection.execute(select(grants).order_by(grants.c.server, grants.c.account)).all()
            return [opened for row in rows if (opened := self._opened(row)) is not None]

        return await self._database.read(read)

    async def save(self, grant: GrantRow) -> None:
        """Keep `grant` in place of whatever its account had for its server, from whichever issuer."""
        from sqlalchemy import insert

        from nanobot.store.schema import grants

        def save(connection: Connection) -> None:
            sealed = self._sealer().seal(grant.content, _place(grant))
            connection.execute(_deletion(grant.server, grant.account))
            connection.execute(
                insert(grants).values(
                    issuer=grant.issuer,
                    resource=grant.resource,
                    account=grant.account,
                    server=grant.server,
                    sealed=sealed,
                    updated=self._clock(),
                )
            )

        await self._database.write(save)

    async def delete(self, *, server: str, account: str = "") -> bool:
        """Forget the grant; whether there was one."""
        return await self._database.write(lambda c: c.execute(_deletion(server, account)).rowcount > 0)

    def _opened(self, row: Row[tuple[str, ...]]) -> GrantRow | None:
        kept = row._mapping  # pyright: ignore[reportPrivateUsage]  # its public name, for want of a better one
        grant = GrantRow(**{name: kept[name] for name in ("issuer", "resource", "account", "server")})
        try:
            content = self._sealer().open(kept["sealed"], _place(grant))
        except CannotOpen as e:
            log.warning("a stored login is not usable", extra={"server": grant.server, "reason": str(e)})
            return None
        return GrantRow(grant.issuer, grant.resource, grant.account, grant.server, content)


def _deletion(server: str, account: str):  # pyright: ignore[reportUnknownParameterType]
    from sqlalchemy import delete

    from nanobot.store.schema import grants

    return delete(grants).where(grants.c.server == server, grants.c.account == account)


def _place(grant: GrantRow) -> bytes:
    """What a sealed grant belongs to: it opens in no other row."""
    return "\n".join((grant.account, grant.server, grant.issuer, grant.resource)).encode()
