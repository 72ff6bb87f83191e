"""Rows for the tests of the store, and programs that use it from another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from nanobot.store.rows import LedgerEntry, StoredMessage, ThreadRow, TurnRow


def thread(id: str = "t1", **fields: str) -> ThreadRow:
    return ThreadRow(id=id, **fields)


def message(id: str, text: str = "hello") -> StoredMessage:
    return StoredMessage(id, f'{{"text":"{text}"}}'.encode())


def call(id: str, state: str = "started", *, thread: str = "t1", started: str = "") -> LedgerEntry:
    return LedgerEntry(
        thread_id=thread,
        turn_id="u1",
        call_id=id,
        name="bash",
        state=state,  # type: ignore[arg-type]
        started=started,
    )


def turn(id: str = "u1", stop: str = "", *, thread: str = "t1") -> TurnRow:
    return TurnRow(id=id, thread_id=thread, agent="main", started="2025-01-01T00:00:00Z", stop=stop)


PRELUDE = """
import sys, anyio
from pathlib import Path
from nanobot.errors import StoreError
from nanobot.store import open_store
from nanobot.store.rows import StoredMessage, ThreadRow
path = Path(sys.argv[1])
"""


def start(
    body: str, *arguments: str | Path, prefix: tuple[str, ...] = (), stdin: int | None = None
) -> subprocess.Popen[str]:
    """A Python process that runs `body`; its output is a pipe of text."""
    command = [*prefix, sys.executable, "-c", PRELUDE + body, *map(str, arguments)]
    return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
