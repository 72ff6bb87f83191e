"""Audit entries as lines of a file that is rotated."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread
from anyio.abc import TaskStatus

log = logging.getLogger(__name__)

MAX_FILE_BYTES: Final = 100 * 1024 * 1024
KEPT: Final = 5
"""How many full files are kept beside the one that grows: `<file>.1` is the newest of them."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""What may wait in memory while the disk refuses."""
FLUSH_S: Final = 0.5


class FileWriter:
    """Takes entries at any time (`put`) and writes them while `run` runs; the rest when that ends."""

    def __init__(self, path: Path, *, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self._path = path
        self._max_file_bytes = max_file_bytes
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._has_news = anyio.Event()
        self._is_closed = False
        self._is_failing = False
        self._dropped = 0

    def put(self, entry: bytes) -> None:
        if self._is_closed:
            return
        if self._waiting_bytes + len(entry) > MAX_BYTES:
            if not self._dropped:
                log.warning("no room for audit entries; some are lost", extra={"file": str(self._path)})
            self._dropped += 1
            return
        self._waiting.append(entry)
        self._waiting_bytes += len(entry)
        self._has_news.set()

    @property
    def backlog(self) -> int:
        return len(self._waiting)

    @property
    def backlog_bytes(self) -> int:
        return self._waiting_bytes

    @property
    def dropped(self) -> int:
        return self._dropped

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Raises `OSError` at once if the file cannot be written at all."""
        await to_thread.run_sync(self._write, ())
        task_status.started()
        try:
            while True:
                await self._has_news.wait()
                self._has_news = anyio.Event()
                await self._flush()
                await anyio.sleep(FLUSH_S)
        finally:
            self._is_closed = True
            with anyio.CancelScope(shield=True):
                await self._flush()

    async def _flush(self) -> None:
        entries = list(self._waiting)
        if not entries:
            return
        try:
            # Shielded: otherwise the last flush could write the same entries again.
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._write, entries)
        except OSError as e:
            if not self._is_failing:
                log.warning("audit file cannot be written; entries wait", extra={"reason": str(e)})
            self._is_failing = True
            return
        self._is_failing = False
        del self._waiting[: len(entries)]
        self._waiting_bytes -= sum(map(len, entries))

    def _write(self, entries: Sequence[bytes]) -> None:
        """Append whole lines. After a write that was cut short the file ends where it did before."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self._path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            start = file.tell()
            try:
                file.write(b"".join(entry + b"\n" for entry in entries))
                file.flush()
            except OSError:
                os.truncate(file.fileno(), start)
                raise
            size = file.tell()
        if size >= self._max_file_bytes:
            self._rotate()

    def _rotate(self) -> None:
        for number in range(KEPT - 1, 0, -1):
            older = self._numbered(number)
            if older.exists():
                older.replace(self._numbered(number + 1))
        self._path.replace(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
