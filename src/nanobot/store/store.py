"""Opening the store, and what an open one offers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import anyio
from anyio import to_thread

from nanobot.store.credentials import Credentials
from nanobot.store.eras import Eras
from nanobot.store.grants import Grants
from nanobot.store.leases import Leases
from nanobot.store.mcp_sessions import McpSessions
from nanobot.store.mcp_tasks import McpTasks
from nanobot.store.processes import Processes
from nanobot.store.sealing import Sealer, load_sealer
from nanobot.store.threads import Threads

_CLOSING_S = 30
"""How long leaving waits for writes that are already queued."""


@dataclass(frozen=True, slots=True)
class Store:
    """An open database. Each attribute is the repository of one kind of thing."""

    threads: Threads
    grants: Grants
    credentials: Credentials
    leases: Leases
    eras: Eras
    mcp_sessions: McpSessions
    mcp_tasks: McpTasks
    processes: Processes
    waiting_writes: Callable[[], int]
    """How many writes have not been begun."""
    sealer: Callable[[], Sealer]
    """Gives what opens and seals secrets of this home. The first call blocks, and may raise `StoreError`."""


def now() -> str:
    """The time in UTC as RFC 3339 with microseconds: of fixed width, so that text sorts as time does."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@asynccontextmanager
async def open_store(
    path: Path,
    *,
    clock: Callable[[], str] = now,
    env: Mapping[str, str] | None = None,
    encryption_key: str = "",
) -> AsyncGenerator[Store]:
    """The store in the SQLite file `path`, made or brought to the current schema first.

    Several processes may have one file open; they know of each other by the folder `processes` beside it.
    Leaving finishes what is queued. Raises `StoreError` when the file cannot be opened, is damaged (it is
    then moved aside) or belongs to a newer program.
    `env` may hold the keys for secrets (`sealing`), and `encryption_key` comes before them; without, there is
    a key file beside the database.
    """
    from nanobot.store.database import Database  # loads SQLAlchemy: 0.2 s

    def open_both() -> tuple[Database, Processes]:
        database = Database.open(path)
        try:
            return database, Processes.join(path.parent / "processes")
        except BaseException:
            database.close()
            raise

    def close_both() -> None:
        database.close()
        processes.leave()

    database, processes = await to_thread.run_sync(open_both)

    @cache
    def sealer() -> Sealer:
        return load_sealer(path.parent, env or {}, configured=encryption_key)

    try:
        yield Store(
            threads=Threads(database, clock, processes),
            grants=Grants(database, clock, sealer),
            credentials=Credentials(database, sealer),
            leases=Leases(database),
            eras=Eras(database),
            mcp_sessions=McpSessions(database, processes),
            mcp_tasks=McpTasks(database),
            processes=processes,
            waiting_writes=lambda: database.waiting_writes,
            sealer=sealer,
        )
    finally:
        with anyio.move_on_after(_CLOSING_S, shield=True):
            await to_thread.run_sync(close_both, abandon_on_cancel=True)
