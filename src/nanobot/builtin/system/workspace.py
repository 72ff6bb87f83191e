"""The folders of one conversation, and what it has seen of the files in them."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakValueDictionary

import anyio

from nanobot.builtin.system.paths import Folder, Mark, Place
from nanobot.config.home import files_of
from nanobot.wire.call import Call

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MAX_REMEMBERED = 20_000


@dataclass(frozen=True, slots=True)
class Workspace:
    """What a call may reach: the working folder, and the conversation's own folder for what tools keep.

    `conversation` is its name, fit for a directory. Without a chosen working folder the two are one.
    """

    conversation: str
    folder: Folder
    own: Folder

    @contextmanager
    def place(self, path: str, *, create: bool = False) -> Generator[Place]:
        """`Folder.place` in the working folder, or in the own one for an absolute path that lies there."""
        folder = self.folder
        if Path(path).is_absolute() and not folder.holds(Path(path)) and self.own.holds(Path(path)):
            folder = self.own
        with folder.place(path, create=create) as place:
            yield place

    def shown(self, path: Path) -> str:
        """`path` as tools print it: relative to the working folder where it lies inside."""
        inside = path.is_relative_to(self.folder.path)
        return path.relative_to(self.folder.path).as_posix() if inside else str(path)


@dataclass(frozen=True, slots=True)
class Workspaces:
    """The workspaces of all conversations. `closed` is what no tool may reach in any folder, `home` first."""

    home: Path
    closed: tuple[Path, ...]

    def of(self, call: Call) -> Workspace:
        """The workspace of a call. Its own folder `<home>/files/<conversation>` is made if it is missing."""
        conversation = _conversation(call)
        own = own_folder(self.home, call)
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = Folder(own.resolve())
        if call.folder is None or call.folder.resolve() == kept.path:
            return Workspace(conversation, kept, kept)
        return Workspace(conversation, Folder(call.folder.resolve(), self.closed), kept)


def own_folder(home: Path, call: Call) -> Path:
    """Where the tools of a call keep files, and work unless another folder was chosen."""
    return files_of(home, _conversation(call))


def _conversation(call: Call) -> str:
    """A name for the conversation that is fit for a directory."""
    name = call.thread or call.caller.session
    if name is None:
        name = f"shared-{call.caller.account}" if call.caller.account else "shared"
    if _SAFE_NAME.fullmatch(name):
        return name
    return "named-" + hashlib.sha256(name.encode()).hexdigest()[:32]


@dataclass(slots=True)
class Seen:
    """Which state of a file each conversation has read or written last; forgotten with the process."""

    _marks: OrderedDict[tuple[str, Path], Mark] = field(default_factory=OrderedDict[tuple[str, Path], Mark])
    _locks: WeakValueDictionary[str, anyio.Lock] = field(default_factory=WeakValueDictionary[str, anyio.Lock])

    def find(self, conversation: str, path: Path) -> Mark | None:
        return self._marks.get((conversation, path))

    def record(self, conversation: str, path: Path, mark: Mark) -> None:
        self._marks[conversation, path] = mark
        self._marks.move_to_end((conversation, path))
        if len(self._marks) > _MAX_REMEMBERED:
            self._marks.popitem(last=False)

    def changing(self, conversation: str) -> anyio.Lock:
        """Held while a file is changed: edits that a model asks for at once are made one after the other."""
        lock = self._locks.get(conversation)
        if lock is None:
            lock = self._locks[conversation] = anyio.Lock()
        return lock
