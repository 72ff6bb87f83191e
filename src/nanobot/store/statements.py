"""The statements on threads, built from the schema and compiled once for the database at hand.

They run as text: building and caching one at each execution costs SQLAlchemy 25 µs, the text 7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    Dialect,
    Table,
    Text,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.expression import ClauseElement

from nanobot.store.schema import messages, threads, tool_calls, turns

Values = Mapping[str, Any]


class Statement:
    """One compiled statement. `columns`: of the row that an insertion takes."""

    __slots__ = ("_constants", "_text")

    def __init__(
        self, statement: ClauseElement, dialect: Dialect, columns: Sequence[str] | None = None
    ) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=columns)
        self._text = str(compiled)
        given: Values = compiled.params or {}
        self._constants = {name: value for name, value in given.items() if isinstance(value, str | int)}

    def run(self, connection: Connection, values: Values) -> CursorResult[*tuple[Any, ...]]:
        return connection.exec_driver_sql(self._text, {**self._constants, **values})

    def run_each(self, connection: Connection, rows: Sequence[Values]) -> None:
        connection.exec_driver_sql(self._text, [{**self._constants, **row} for row in rows])


class Statements:
    """What `Threads` asks of the database. Parameters: `thread`, the fields of a row, or as named here."""

    def __init__(self, dialect: Dialect) -> None:
        def prepared(statement: ClauseElement, table: Table | None = None) -> Statement:
            columns = None if table is None else [c.name for c in table.c if c is not messages.c.seq]
            return Statement(statement, dialect, columns)

        thread, name = bindparam("thread", type_=Text), bindparam("name", type_=Text)
        ours = threads.c.account == bindparam("account")
        this = threads.c.id == thread
        self.create = prepared(insert(threads), threads)
        self.find = prepared(
            select(threads)
            .where(ours, (threads.c.id == name) | (threads.c.key == name))
            .order_by((threads.c.id == name).desc())
            .limit(1)
        )
        """`name`, `account`; an id comes before a key."""
        self.recent = prepared(
            select(threads)
            .where(ours)
            .order_by(threads.c.updated.desc(), threads.c.id)
            .limit(bindparam("limit"))
        )
        """`account`, `limit`"""
        self.rename = prepared(update(threads).where(this).values(title=bindparam("title")))
        """`title`"""
        self.delete = prepared(delete(threads).where(this))
        self.touch = prepared(update(threads).where(this).values(updated=bindparam("now")))
        """`now`"""
        self.add_message = prepared(insert(messages), messages)
        self.record_call = prepared(_upsert(tool_calls), tool_calls)
        self.record_turn = prepared(_upsert(turns, kept=("owner",)), turns)
        """A turn on record keeps its `owner`."""
        self.last = prepared(
            select(messages.c.id)
            .where(messages.c.thread_id == thread)
            .order_by(messages.c.seq.desc())
            .limit(1)
        )
        self.others = prepared(
            select(turns.c.owner)
            .distinct()
            .where(turns.c.thread_id == thread, turns.c.stop == "", turns.c.owner != bindparam("own"))
        )
        """`own`; the other owners of turns that have not ended."""
        self.messages = prepared(
            select(messages.c.id, messages.c.raw)
            .where(messages.c.thread_id == thread)
            .order_by(messages.c.seq)
        )
        self.open_turns = prepared(select(turns).where(turns.c.thread_id == thread, turns.c.stop == ""))
        self.open_calls = prepared(
            select(tool_calls).where(tool_calls.c.thread_id == thread, tool_calls.c.state != "done")
        )


def _upsert(table: Table, *, kept: Sequence[str] = ()) -> sqlite.Insert:
    """Insert a row, or replace the one with its key but for what is `kept`.

    An empty `started` keeps the one on record.
    """
    insertion = sqlite.insert(table)
    new: dict[str, ColumnElement[Any]] = {
        c.name: insertion.excluded[c.name] for c in table.c if not c.primary_key and c.name not in kept
    }
    new["started"] = func.coalesce(func.nullif(new["started"], ""), table.c.started)
    return insertion.on_conflict_do_update(index_elements=list(table.primary_key), set_=new)
