"""Conversations on record: threads, their messages, their turns and their tool calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nanobot.errors import Busy, NotFound
from nanobot.store.processes import Processes, pid_of
from nanobot.store.rows import LedgerEntry, RecordedThread, StoredMessage, ThreadRow, TurnRow

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from nanobot.store.database import Database
    from nanobot.store.statements import Statement


class Threads:
    """The repository of threads. What has returned is durable; a cancelled write still happens, as a whole.

    Only one process at a time has unfinished turns in a thread: it got them by `accept`, and meanwhile nobody
    else adds to the thread. Every method may raise `StoreError`.
    """

    def __init__(self, database: Database, clock: Callable[[], str], processes: Processes) -> None:
        from nanobot.store.statements import Statements  # loads SQLAlchemy

        self.processes = processes
        self._database = database
        self._clock = clock
        self._sql = Statements(database.dialect)

    async def create(self, row: ThreadRow) -> ThreadRow:
        """Store a new thread and return it as stored: times that are "" become now.

        Raises `Duplicate` if its id or key is taken.
        """
        now = self._clock()
        row = replace(row, created=row.created or now, updated=row.updated or now)
        await self._database.write(lambda c: self._sql.create.run(c, _fields(row)))
        return row

    async def find(self, id_or_key: str, *, account: str = "") -> ThreadRow | None:
        """The thread of `account` with this id, else with this key."""
        values = {"name": id_or_key, "account": account}

        def find(connection: Connection) -> ThreadRow | None:
            found = self._sql.find.run(connection, values).mappings().first()
            return None if found is None else ThreadRow(**found)

        return await self._database.read(find)

    async def recent(self, *, account: str = "", limit: int = 50) -> list[ThreadRow]:
        """The threads of `account`, the last changed first."""
        values = {"account": account, "limit": limit}

        def recent(connection: Connection) -> list[ThreadRow]:
            return [ThreadRow(**row) for row in self._sql.recent.run(connection, values).mappings()]

        return await self._database.read(recent)

    async def rename(self, id: str, title: str) -> None:
        """Give the thread a title. Raises `NotFound`."""
        values = {"thread": id, "title": title}
        await self._database.write(lambda c: _meet(c, self._sql.rename, values))

    async def delete(self, id: str) -> None:
        """Remove the thread with everything that belongs to it. Raises `NotFound`."""
        await self._database.write(lambda c: _meet(c, self._sql.delete, {"thread": id}))

    async def accept(self, thread_id: str, message: StoredMessage, turn: TurnRow) -> str:
        """Add the input of a new turn of this process; the id of the message it follows, "" for the first.

        Raises `Busy` while another living process has an unfinished turn in the thread, `NotFound`,
        `Duplicate`.
        """
        own = self.processes.own
        values = {"thread": thread_id, "own": own}
        fields = _fields(replace(turn, owner=own))

        def accept(connection: Connection) -> str:
            for (owner,) in self._sql.others.run(connection, values).all():
                if self.processes.is_alive(owner):
                    raise Busy(
                        f"Another nanobot (process {pid_of(owner)}) is answering in this conversation; try "
                        "again when it has answered."
                    )
            before = self._last(connection, thread_id)
            self._append(connection, thread_id, [message], (), fields)
            return before

        return await self._database.write(accept)

    async def append(
        self,
        thread_id: str,
        messages: Sequence[StoredMessage],
        *,
        calls: Sequence[LedgerEntry] = (),
        turn: TurnRow | None = None,
    ) -> None:
        """Add messages, and record where tool calls and the turn stand, all or nothing.

        A ledger entry replaces the one with its thread and call id, a turn the one with its id. Raises
        `NotFound` for an unknown thread and `Duplicate` for a message id that the thread already has.
        """
        fields = None if turn is None else _fields(turn)
        await self._database.write(lambda c: self._append(c, thread_id, messages, calls, fields))

    async def append_after(
        self,
        last: str,
        thread_id: str,
        messages: Sequence[StoredMessage],
        *,
        calls: Sequence[LedgerEntry] = (),
        turn: TurnRow | None = None,
    ) -> bool:
        """`append` if `last` is the id of the last message of the thread. Whether it was."""
        fields = None if turn is None else _fields(turn)

        def append(connection: Connection) -> bool:
            if self._last(connection, thread_id) != last:
                return False
            self._append(connection, thread_id, messages, calls, fields)
            return True

        return await self._database.write(append)

    async def last(self, thread_id: str) -> str:
        """The id of the last message of the thread, "" if there is none."""
        return await self._database.read(lambda c: self._last(c, thread_id))

    async def record(self, thread_id: str) -> RecordedThread:
        """All that is known of the thread; nothing of an unknown one."""
        values = {"thread": thread_id}

        def read(connection: Connection) -> RecordedThread:
            rows = self._sql.messages.run(connection, values)
            messages = [StoredMessage(row[0], row[1]) for row in rows]
            return RecordedThread(messages, *self._unfinished(connection, values))

        return await self._database.read(read)

    async def messages(self, thread_id: str) -> list[StoredMessage]:
        """All messages of the thread, the oldest first; none for an unknown thread."""

        def read(connection: Connection) -> list[StoredMessage]:
            rows = self._sql.messages.run(connection, {"thread": thread_id})
            return [StoredMessage(row[0], row[1]) for row in rows]

        return await self._database.read(read)

    async def unfinished(self, thread_id: str) -> tuple[list[TurnRow], list[LedgerEntry]]:
        """What was going on when the record ends: turns without a stop, calls that are not `done`."""
        return await self._database.read(lambda c: self._unfinished(c, {"thread": thread_id}))

    def _unfinished(
        self, connection: Connection, values: dict[str, str]
    ) -> tuple[list[TurnRow], list[LedgerEntry]]:
        turns = self._sql.open_turns.run(connection, values).mappings()
        calls = self._sql.open_calls.run(connection, values).mappings()
        return [TurnRow(**turn) for turn in turns], [LedgerEntry(**call) for call in calls]

    def _last(self, connection: Connection, thread_id: str) -> str:
        row = self._sql.last.run(connection, {"thread": thread_id}).first()
        return "" if row is None else row[0]

    def _append(
        self,
        connection: Connection,
        thread_id: str,
        messages: Sequence[StoredMessage],
        calls: Sequence[LedgerEntry],
        turn: dict[str, str | None] | None,
    ) -> None:
        _meet(connection, self._sql.touch, {"thread": thread_id, "now": self._clock()})
        if messages:
            rows = [{"thread_id": thread_id, "id": m.id, "raw": m.raw} for m in messages]
            self._sql.add_message.run_each(connection, rows)
        if calls:
            self._sql.record_call.run_each(connection, [_fields(call) for call in calls])
        if turn is not None:
            self._sql.record_turn.run(connection, turn)


def _meet(connection: Connection, statement: Statement, values: dict[str, str]) -> None:
    """Run a statement on the thread `values["thread"]`. Raises `NotFound` if there is none."""
    if statement.run(connection, values).rowcount == 0:
        raise NotFound(f"There is no thread {values['thread']!r}.")


def _fields(row: ThreadRow | LedgerEntry | TurnRow) -> dict[str, str | None]:
    """The fields of a row by name: `asdict` would copy each value, at ten times the cost."""
    return {name: getattr(row, name) for name in row.__slots__}
