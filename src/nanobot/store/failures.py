"""What SQLite says, as a sentence for a person."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from nanobot.errors import Duplicate, StoreError

_PRIMARY = 0xFF
"""The low byte of an extended result code is the primary code."""


def is_damage(error: BaseException) -> bool:
    """Whether `error` says that the file itself is no sound database."""
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def explain(error: BaseException, path: Path) -> StoreError:
    """`error`, raised by a statement or by opening `path`, as a `StoreError` that says what to do."""
    match _code(error):
        case sqlite3.SQLITE_CONSTRAINT:
            return Duplicate("That is already stored, or refers to something that is not.")
        case sqlite3.SQLITE_FULL:
            return StoreError(
                f"The disk that holds the database '{path}' is full; nothing was written, reading goes on. "
                "Free some space and try again, no restart is needed."
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreError(
                f"The database '{path}' is held by another process; nothing was written. Try again, or stop "
                "the process that holds it."
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return StoreError(
                f"The database '{path}' cannot be written by this user. Check who owns it and its folder."
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StoreError(
                f"The database '{path}' is damaged; nothing was written. Stop nanobot and start it again: it "
                "moves a damaged file aside and says how to repair it."
            )
        case sqlite3.SQLITE_IOERR:
            return StoreError(
                f"The disk that holds the database '{path}' reports an error; nothing was written. Check the "
                "disk and its free space."
            )
        case _:
            return StoreError(f"The database '{path}' refused: {_origin(error)}.")


def _origin(error: BaseException) -> BaseException:
    """The driver's own error below SQLAlchemy's wrapping."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def _code(error: BaseException) -> int | None:
    code: int | None = getattr(_origin(error), "sqlite_errorcode", None)
    return None if code is None else code & _PRIMARY
