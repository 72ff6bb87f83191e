"""Which processes work on this home: each holds a locked file of its own for as long as it lives.

The kernel gives the lock back however a process ends, so nothing here can be out of date. Windows has no
such lock; there being open takes its place, because a file that somebody has open cannot be removed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from nanobot.errors import StoreError
from nanobot.ids import new_id

if sys.platform == "win32":

    def _hold(file: int) -> bool:
        """To have it open is enough."""
        return True

    def _is_held(path: Path) -> bool:
        try:
            path.unlink(missing_ok=True)
        except PermissionError:
            return True
        return False

else:
    import fcntl

    def _hold(file: int) -> bool:
        """Lock it; False if somebody took it for a leftover and removed it before."""
        fcntl.flock(file, fcntl.LOCK_EX)
        return os.fstat(file).st_nlink > 0

    def _is_held(path: Path) -> bool:
        """Whether its process lives; if not, the file is removed."""
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            # A shared lock: two who look at once must not take each other for the owner.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False


class Processes:
    """The processes of one home, seen from this one. An id is `<pid>-<random>`, never used twice."""

    def __init__(self, folder: Path, own: str, file: int) -> None:
        self.own = own
        """The id of this process."""
        self._folder = folder
        self._file = file

    @staticmethod
    def join(folder: Path) -> Processes:
        """Be one of the processes in `folder`; what dead ones left is removed. Blocks.

        Raises `StoreError`.
        """
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            for leftover in folder.iterdir():
                if leftover.is_file():
                    _is_held(leftover)
            while True:
                own = new_id(str(os.getpid())).replace("_", "-")
                file = os.open(folder / own, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
                if _hold(file):
                    return Processes(folder, own, file)
                os.close(file)
        except OSError as e:
            raise StoreError(
                f"The file in '{folder}' that shows other processes that this one runs cannot be made: "
                f"{e.strerror or e}."
            ) from e

    def leave(self) -> None:
        """This process is done with everything that others see as its own."""
        os.close(self._file)
        (self._folder / self.own).unlink(missing_ok=True)

    def has_company(self) -> bool:
        """Whether another process works on this home now. A few system calls."""
        try:
            return any(_is_held(file) for file in self._folder.iterdir() if file.name != self.own)
        except OSError:  # the folder is gone: nobody can be seen, and nobody sees us
            return False

    def is_alive(self, id: str) -> bool:
        """Whether the process with this id still works here. "" is nobody."""
        return bool(id) and (id == self.own or _is_held(self._folder / id))


def pid_of(id: str) -> str:
    """The number the system gave the process with this id."""
    return id.partition("-")[0]
