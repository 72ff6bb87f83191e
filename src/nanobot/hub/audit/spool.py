"""Entries on disk that wait for their endpoint, the oldest first.

Two files: the lines, and how many bytes of them have been delivered. Both survive the process; a line that
was cut off by a crash is left out when it is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 1024 * 1024 * 1024
"""Beyond this nothing is added."""


class Spool:
    """A queue in a file. Blocking: call it in a thread, one call at a time. Raises `OSError`."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._mark = path.with_suffix(".delivered")
        self._max_bytes = max_bytes
        self._size = path.stat().st_size if path.exists() else 0
        self._start = min(_number(self._mark), self._size)
        self._end_of_read = self._start

    @property
    def waiting_bytes(self) -> int:
        return self._size - self._start

    def append(self, lines: Iterable[bytes]) -> int:
        """Add `lines` as far as there is room and make them durable; gives how many were left out."""
        kept: list[bytes] = []
        left_out, size = 0, self._size
        for line in lines:
            if size + len(line) + 1 > self._max_bytes:
                left_out += 1
                continue
            size += len(line) + 1
            kept.append(line + b"\n")
        if kept:
            with self._open("ab") as file:
                if file.tell() and not _ends_with_newline(self._path):
                    file.write(b"\n")  # after a crash in the middle of a line
                file.write(b"".join(kept))
                file.flush()
                os.fsync(file.fileno())
                self._size = file.tell()
        return left_out

    def read(self, count: int, max_bytes: int) -> list[bytes]:
        """The oldest entries not yet delivered, at most `count` and about `max_bytes`. Removes nothing."""
        lines: list[bytes] = []
        size = 0
        with self._path.open("rb") as file:
            file.seek(self._start)
            while len(lines) < count and size < max_bytes:
                line = file.readline()
                if not line:
                    break
                size += len(line)
                if line.endswith(b"}\n"):
                    lines.append(line[:-1])
        self._end_of_read = self._start + size
        return lines

    def delivered(self) -> None:
        """What was read last need not be kept. Nothing left: the files are gone."""
        self._start = self._end_of_read
        if self._start < self._size:
            beside = self._mark.with_suffix(".new")
            beside.write_text(str(self._start))
            beside.replace(self._mark)
            return
        self._path.unlink(missing_ok=True)
        self._mark.unlink(missing_ok=True)
        self._size = self._start = self._end_of_read = 0

    def put_before(self, lines: Sequence[bytes]) -> None:
        """Put `lines` before everything that waits."""
        if not self.waiting_bytes:
            self.append(lines)
            return
        beside = self._path.with_suffix(".new")
        with _private(beside, "wb") as file, self._path.open("rb") as old:
            file.write(b"".join(line + b"\n" for line in lines))
            old.seek(self._start)
            while chunk := old.read(1 << 20):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
            self._size = file.tell()
        self._mark.unlink(missing_ok=True)
        beside.replace(self._path)
        self._start = self._end_of_read = 0

    def _open(self, mode: str):
        return _private(self._path, mode)


def _private(path: Path, mode: str):
    """Open a file that nobody else can read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0
