"""The open SQLite file: one thread that writes, a few that read, and the rules for opening one."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError

from nanobot.errors import StoreError
from nanobot.store.failures import explain, is_damage
from nanobot.store.migrations import migrate, refuse_newer
from nanobot.store.writer import Writer

T = TypeVar("T")

_READERS = 4
_BUSY_S = 5.0
"""How long one process waits for another's write before it gives up."""
_CHECKED_BYTES = 16 * 1024 * 1024
"""A file up to this size is read through when it is opened (about 30 ms); a larger one is not."""


class Database:
    """Runs work on connections: `write` one piece after the other, `read` a few at once.

    A write is durable when it returns: the log is synced at each commit (`synchronous=FULL`), one sync for
    all that waits. With `NORMAL` an acknowledged message could be lost with the power.
    """

    def __init__(self, path: Path, engine: Engine) -> None:
        self._path = path
        self._engine = engine
        self._closed = False
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="nanobot-store-reader")
        self._writing = engine.connect()
        self._writer = Writer(self._writing, partial(explain, path=path))

    @staticmethod
    def open(path: Path) -> Database:
        """Open or make the file, checked and at the current schema. Blocks. Raises `StoreError`."""
        try:
            _make_private(path)
            engine = _engine(path)
            try:
                _prepare(engine, path)
                return Database(path, engine)
            except BaseException:
                engine.dispose()
                raise
        except (DBAPIError, sqlite3.Error) as e:
            if is_damage(e):
                raise _set_aside(path) from e
            raise explain(e, path) from e
        except OSError as e:
            raise StoreError(f"The database '{path}' cannot be opened: {e.strerror or e}.") from e

    @property
    def dialect(self) -> Any:
        """What statements are compiled for."""
        return self._engine.dialect

    @property
    def waiting_writes(self) -> int:
        return self._writer.waiting

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction; see `Writer.run`."""
        return await self._writer.run(work)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on one consistent state of the database, which holds every write that has returned."""
        if self._closed:
            raise StoreError("The database is closed.")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    def close(self) -> None:
        """Finish what was given, then let go of the file. Blocks."""
        self._closed = True
        self._writer.close()
        self._readers.shutdown()
        self._writing.close()
        self._engine.dispose()

    def _read(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._engine.connect() as connection:
                connection.exec_driver_sql("BEGIN")
                try:
                    return work(connection)
                finally:
                    connection.exec_driver_sql("ROLLBACK")
        except DBAPIError as e:
            raise explain(e, self._path) from e


def _make_private(path: Path) -> None:
    """The file and its folder exist, readable by nobody else; SQLite's side files inherit the mode."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _engine(path: Path) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        isolation_level="AUTOCOMMIT",  # transactions are written out where they are meant
        paramstyle="named",
        connect_args={"timeout": _BUSY_S},
        pool_size=_READERS + 1,
        max_overflow=0,
    )

    def configure(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")

    event.listen(engine, "connect", configure)
    return engine


def _prepare(engine: Engine, path: Path) -> None:
    with engine.connect() as connection:
        refuse_newer(connection, path)  # before anything in the file changes
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")
        if path.stat().st_size <= _CHECKED_BYTES:
            _check(connection)
        migrate(connection, path)


def _check(connection: Connection) -> None:
    verdict = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    if verdict != "ok":
        damage = sqlite3.DatabaseError(str(verdict))
        damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damage


def _set_aside(path: Path) -> StoreError:
    """Move a damaged file and its side files out of the way, unchanged; the error that says so."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    for suffix in ("", "-wal", "-shm"):
        side = path.with_name(path.name + suffix)
        if side.exists():
            side.rename(aside.with_name(aside.name + suffix))
    return StoreError(
        f"The database '{path}' is damaged. It was moved to '{aside}', nothing in it was changed. "
        f"`sqlite3 '{aside}' .recover | sqlite3 '{path}'` saves what can be read; without it the next start "
        "begins with an empty database."
    )
