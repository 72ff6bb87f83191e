"""Where tools may reach: paths are walked by open directories, so that no link or race leads outside.

A check on a path and a later use of the same path are two different things when a command can swap a
directory for a link in between. Here every step opens one name inside the directory already held, never
following a link; links are read and walked as part of the path, and none may leave the folder.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nanobot.builtin.server import ToolFailed
from nanobot.ids import new_id

_MAX_LINKS = 40
# Windows has none of these, nor the calls on open directories: `Folder.place` refuses there.
_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
_NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)
_DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)


class Mark(NamedTuple):
    """What tells one state of a file from another."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @staticmethod
    def of(found: os.stat_result) -> Mark:
        return Mark(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    @staticmethod
    def of_open(file: BinaryIO) -> Mark:
        return Mark.of(os.fstat(file.fileno()))


@dataclass(frozen=True, slots=True)
class Place:
    """A name in an open directory: what a path led to, existing or not. Valid inside `Folder.place`.

    `path` is absolute and free of links. The errors of the methods are `OSError`.
    """

    directory: int
    name: str
    path: Path

    def stat(self) -> os.stat_result | None:
        try:
            return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def mark(self) -> Mark | None:
        """The state of the file; None if there is none. Anything but a regular file is `ToolFailed`."""
        found = self.stat()
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise ToolFailed(f"'{self.path}' is not a regular file.")
        return None if found is None else Mark.of(found)

    def open(self) -> BinaryIO:
        """Open a regular file for reading. Anything else (directory, pipe, device) is `ToolFailed`."""
        # A pipe must not make us wait for its writer.
        file = os.open(self.name, os.O_RDONLY | _NOFOLLOW | _NONBLOCK, dir_fd=self.directory)
        kind = os.fstat(file).st_mode
        if not stat.S_ISREG(kind):
            os.close(file)
            what = "a directory" if stat.S_ISDIR(kind) else "not a regular file"
            raise ToolFailed(f"'{self.path}' is {what}.")
        return os.fdopen(file, "rb")

    def create(self) -> BinaryIO:
        """Make a new file for writing, readable by its owner alone."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        return os.fdopen(os.open(self.name, flags, 0o600, dir_fd=self.directory), "wb")

    def replace(self, content: bytes, *, known: Mark | None) -> Mark:
        """Make `content` the file's content in one step; a crash leaves the old or the new file, whole.

        `known` is the state the caller has based its work on, None for no file: another one is `ToolFailed`.
        Mode and owner of an existing file are kept.
        """
        beside = f".{new_id('part')}"
        try:
            with Place(self.directory, beside, self.path).create() as writing:
                writing.write(content)
                writing.flush()
                _keep_owner(writing.fileno(), self.stat())
                os.fsync(writing.fileno())
                mark = Mark.of_open(writing)
            if self.mark() != known:
                raise ToolFailed(f"'{self.path}' changed since it was read. Read it again first.")
            os.rename(beside, self.name, src_dir_fd=self.directory, dst_dir_fd=self.directory)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=self.directory)
            raise
        os.fsync(self.directory)
        return mark


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory that tools may use. `hidden` directories and files inside it are closed to them."""

    path: Path
    hidden: tuple[Path, ...] = ()

    @contextmanager
    def place(self, path: str | Path, *, create: bool = False) -> Generator[Place]:
        """What the relative or absolute `path` leads to. `create` makes missing parents (mode 0755).

        Raises `ToolFailed` for a path that leads outside or to something hidden, `FileNotFoundError`
        and other `OSError`s for a parent that is not there.
        """
        held = [_open_root(self.path)]
        try:
            names = self._walk(held, self._steps(Path(path)), create)
            yield Place(held[-1], names[-1] if names else ".", self.path.joinpath(*names))
        finally:
            for directory in held:
                os.close(directory)

    def holds(self, path: Path) -> bool:
        return path.is_relative_to(self.path) or path.is_relative_to(self.path.resolve())

    def _steps(self, path: Path) -> Iterable[str]:
        if "\0" in str(path):
            raise ToolFailed("A path cannot hold a NUL character.")
        if not path.is_absolute():
            return path.parts
        for root in (self.path, self.path.resolve()):
            if path.is_relative_to(root):
                return path.relative_to(root).parts
        raise self._outside(path)

    def _walk(self, held: list[int], steps: Iterable[str], create: bool) -> list[str]:
        """Hold the directories on the way; return the names from the root, the last one not entered.

        `names[i]` is a name inside `held[i]`, and was no link when it was looked at.
        """
        hidden = {(found.st_dev, found.st_ino) for found in map(_stat, self.hidden) if found is not None}
        names: list[str] = []
        ahead = deque(steps)
        links = 0
        while ahead:
            step = ahead.popleft()
            if step == "..":
                if not names:
                    raise self._outside(Path(step, *ahead))
                names.pop()
                _let_go(held, len(names))
                continue
            if len(names) == len(held):
                held.append(_enter(held[-1], names[-1], create))
                self._refuse_hidden(os.fstat(held[-1]), hidden, names)
            found = _stat(step, held[-1])
            if found is not None and stat.S_ISLNK(found.st_mode):
                links += 1
                if links > _MAX_LINKS:
                    raise ToolFailed(f"Too many links on the way to '{step}'.")
                target = Path(os.readlink(step, dir_fd=held[-1]))
                if target.is_absolute():
                    names.clear()
                    _let_go(held, 1)
                ahead.extendleft(reversed(tuple(self._steps(target))))
                continue
            if found is not None:
                self._refuse_hidden(found, hidden, [*names, step])
            names.append(step)
        return names

    def _refuse_hidden(self, found: os.stat_result, hidden: set[tuple[int, int]], names: list[str]) -> None:
        if (found.st_dev, found.st_ino) in hidden:
            raise ToolFailed(f"'{self.path.joinpath(*names)}' is closed to tools: it may hold secrets.")

    def _outside(self, path: Path) -> ToolFailed:
        return ToolFailed(
            f"'{path}' is outside the working folder '{self.path}'; tools reach only files inside it."
        )


def _keep_owner(file: int, old: os.stat_result | None) -> None:
    if old is None:
        os.fchmod(file, 0o644)
        return
    with suppress(PermissionError):  # another user's file in a folder of ours
        os.fchown(file, old.st_uid, old.st_gid)
    os.fchmod(file, stat.S_IMODE(old.st_mode))


def _open_root(path: Path) -> int:
    if os.open not in os.supports_dir_fd:
        raise ToolFailed("File tools need Linux or macOS: this system cannot hold a path while it is used.")
    try:
        return os.open(path, os.O_RDONLY | _DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        raise ToolFailed(f"The working folder '{path}' does not exist.") from None


def _enter(parent: int, name: str, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=parent)
    return os.open(name, os.O_RDONLY | _DIRECTORY | _NOFOLLOW, dir_fd=parent)


def _let_go(held: list[int], wanted: int) -> None:
    """Keep the first `wanted` directories, and the root in any case."""
    while len(held) > max(1, wanted):
        os.close(held.pop())


def _stat(path: str | Path, directory: int | None = None) -> os.stat_result | None:
    try:
        return os.stat(path, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
