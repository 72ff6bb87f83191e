"""The way of a database file from any earlier schema to the present one.

`MIGRATIONS` only grows: a released step is never edited, because files exist that have already taken it.
All missing steps run in one transaction under the write lock, so a file is upgraded or untouched.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection

from nanobot.errors import StoreError

Migration = Callable[[Connection], None]


def _threads(connection: Connection) -> None:
    for statement in (
        """CREATE TABLE threads (
            id TEXT NOT NULL PRIMARY KEY,
            key TEXT,
            account TEXT NOT NULL DEFAULT '',
            agent TEXT NOT NULL DEFAULT '',
            title TEXT NOT NULL DEFAULT '',
            kind TEXT NOT NULL DEFAULT '',
            folder TEXT NOT NULL DEFAULT '',
            created TEXT NOT NULL DEFAULT '',
            updated TEXT NOT NULL DEFAULT '',
            UNIQUE (account, key)
        )""",
        "CREATE INDEX threads_recent ON threads (account, updated)",
        """CREATE TABLE messages (
            seq INTEGER NOT NULL PRIMARY KEY,
            thread_id TEXT NOT NULL,
            id TEXT NOT NULL,
            raw BLOB NOT NULL,
            UNIQUE (thread_id, id),
            FOREIGN KEY (thread_id) REFERENCES threads (id) ON DELETE CASCADE
        )""",
        "CREATE INDEX messages_in_order ON messages (thread_id, seq)",
        """CREATE TABLE turns (
            id TEXT NOT NULL PRIMARY KEY,
            thread_id TEXT NOT NULL,
            agent TEXT NOT NULL DEFAULT '',
            started TEXT NOT NULL DEFAULT '',
            stop TEXT NOT NULL DEFAULT '',
            FOREIGN KEY (thread_id) REFERENCES threads (id) ON DELETE CASCADE
        )""",
        "CREATE INDEX turns_by_stop ON turns (thread_id, stop)",
        """CREATE TABLE tool_calls (
            thread_id TEXT NOT NULL,
            call_id TEXT NOT NULL,
            turn_id TEXT NOT NULL,
            name TEXT NOT NULL DEFAULT '',
            state TEXT NOT NULL,
            started TEXT NOT NULL DEFAULT '',
            PRIMARY KEY (thread_id, call_id),
            FOREIGN KEY (thread_id) REFERENCES threads (id) ON DELETE CASCADE
        )""",
        "CREATE INDEX tool_calls_by_state ON tool_calls (thread_id, state)",
    ):
        connection.exec_driver_sql(statement)


def _grants(connection: Connection) -> None:
    for statement in (
        """CREATE TABLE grants (
            issuer TEXT NOT NULL,
            resource TEXT NOT NULL,
            account TEXT NOT NULL,
            server TEXT NOT NULL,
            sealed BLOB NOT NULL,
            updated TEXT NOT NULL DEFAULT '',
            PRIMARY KEY (issuer, resource, account, server),
            UNIQUE (server, account)
        )""",
        """CREATE TABLE leases (
            name TEXT NOT NULL PRIMARY KEY,
            holder TEXT NOT NULL,
            until FLOAT NOT NULL
        )""",
    ):
        connection.exec_driver_sql(statement)


def _credentials(connection: Connection) -> None:
    for statement in (
        """CREATE TABLE credentials (
            kind TEXT NOT NULL,
            id TEXT NOT NULL,
            owner TEXT NOT NULL DEFAULT '',
            body BLOB NOT NULL,
            used INTEGER NOT NULL,
            expires INTEGER NOT NULL,
            PRIMARY KEY (kind, id)
        )""",
        "CREATE INDEX credentials_by_owner ON credentials (owner)",
        "CREATE INDEX credentials_by_end ON credentials (expires)",
    ):
        connection.exec_driver_sql(statement)


def _owners(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE turns ADD COLUMN owner TEXT NOT NULL DEFAULT ''")


def _mcp_sessions(connection: Connection) -> None:
    for statement in (
        """CREATE TABLE mcp_sessions (
            id TEXT NOT NULL PRIMARY KEY,
            account TEXT NOT NULL DEFAULT '',
            revision INTEGER NOT NULL,
            state BLOB NOT NULL,
            used INTEGER NOT NULL
        )""",
        "CREATE INDEX mcp_sessions_by_use ON mcp_sessions (used)",
    ):
        connection.exec_driver_sql(statement)


def _eras(connection: Connection) -> None:
    connection.exec_driver_sql(
        """CREATE TABLE eras (
            definition TEXT NOT NULL PRIMARY KEY,
            era TEXT NOT NULL,
            until FLOAT NOT NULL
        )"""
    )


def _mcp_tasks(connection: Connection) -> None:
    for statement in (
        """CREATE TABLE mcp_tasks (
            id TEXT NOT NULL PRIMARY KEY,
            account TEXT NOT NULL DEFAULT '',
            process TEXT NOT NULL,
            state BLOB NOT NULL,
            until INTEGER NOT NULL
        )""",
        "CREATE INDEX mcp_tasks_by_end ON mcp_tasks (until)",
    ):
        connection.exec_driver_sql(statement)


MIGRATIONS: Sequence[Migration] = (
    _threads,
    _grants,
    _credentials,
    _owners,
    _mcp_sessions,
    _eras,
    _mcp_tasks,
)
"""Step n (from 1) leads from schema n - 1 to n."""


def schema_version(connection: Connection) -> int:
    """The schema of the file; 0 for an empty one or one that another program made."""
    known = connection.exec_driver_sql("SELECT 1 FROM sqlite_master WHERE name = 'schema_migrations'")
    if known.first() is None:
        return 0
    return connection.exec_driver_sql("SELECT coalesce(max(version), 0) FROM schema_migrations").scalar_one()


def refuse_newer(connection: Connection, path: Path, newest: int = len(MIGRATIONS)) -> None:
    """Raise `StoreError` if the file has a schema that this program does not know."""
    version = schema_version(connection)
    if version > newest:
        raise StoreError(
            f"The database '{path}' has schema {version}, written by a newer nanobot; this one knows schemas "
            f"up to {newest}. Upgrade nanobot, or put back the copy '{path}.bak-{newest}' if there is one."
        )


def migrate(connection: Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Take the steps that are missing. A file with content is copied to `<path>.bak-<version>` first.

    `connection` is in autocommit mode. Safe to run in several processes at once: the second one waits.
    """
    if schema_version(connection) == len(migrations):
        return
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    try:
        refuse_newer(connection, path, len(migrations))  # somebody else may have been faster
        version = schema_version(connection)
        if version < len(migrations) and _has_content(connection):
            _back_up(path, path.with_name(f"{path.name}.bak-{version}"))
        connection.exec_driver_sql(
            "CREATE TABLE IF NOT EXISTS schema_migrations "
            "(version INTEGER NOT NULL PRIMARY KEY, applied_at TEXT NOT NULL)"
        )
        for number, step in enumerate(migrations[version:], version + 1):
            step(connection)
            connection.exec_driver_sql(
                "INSERT INTO schema_migrations VALUES (?, ?)", (number, datetime.now(UTC).isoformat())
            )
        connection.exec_driver_sql("COMMIT")
    except BaseException:
        connection.exec_driver_sql("ROLLBACK")
        raise


def _has_content(connection: Connection) -> bool:
    return connection.exec_driver_sql("SELECT 1 FROM sqlite_master").first() is not None


def _back_up(path: Path, copy: Path) -> None:
    """A durable copy of the committed content of `path`; an older copy is replaced as a whole."""
    beside = copy.with_name(copy.name + ".part")
    beside.unlink(missing_ok=True)
    os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(beside)) as target:
        source.backup(target)
    with beside.open("rb") as written:
        os.fsync(written.fileno())
    beside.replace(copy)
