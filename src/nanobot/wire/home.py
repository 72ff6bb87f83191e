"""What the processes that serve one home share: sessions on record, a key, and who else is there."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol


class SessionRecord(NamedTuple):
    """A session as it is kept. `revision` is 0 before it was saved for the first time."""

    id: str
    account: str
    revision: int
    state: bytes


class SessionStore(Protocol):
    """Keeps sessions beyond the process. Rows are those of `SessionRecord`.

    Everything but `is_shared` may raise `StoreError`; then nothing was changed.
    """

    def is_shared(self) -> bool:
        """Whether other processes may serve the same sessions now."""
        ...

    async def find(self, id: str, account: str) -> tuple[str, str, int, bytes] | None:
        """The session with this id; one of another account is none, and takes as long to look for."""
        ...

    async def missing(self, ids: Collection[str]) -> set[str]:
        """Which of `ids` are not kept."""
        ...

    async def save(self, rows: Sequence[tuple[str, str, int, bytes]]) -> list[bool]:
        """Keep each under the revision after its own. False for those that have another one by now, or none.

        Calls take effect in the order in which they were begun.
        """
        ...

    async def delete(self, id: str, account: str) -> bool:
        """Forget a session; whether there was one."""
        ...

    async def prune(self) -> None:
        """Forget what nobody has used for long."""
        ...


class NoStore:
    """Keeps nothing: sessions live as long as they are used."""

    def is_shared(self) -> bool:
        return False

    async def find(self, id: str, account: str) -> None:
        return None

    async def missing(self, ids: Collection[str]) -> set[str]:
        return set()

    async def save(self, rows: Sequence[tuple[str, str, int, bytes]]) -> list[bool]:
        return [True] * len(rows)

    async def delete(self, id: str, account: str) -> bool:
        return False

    async def prune(self) -> None:
        pass


class TaskStore(Protocol):
    """Keeps tasks until a time in seconds since the epoch, beyond the process. May raise `StoreError`."""

    async def find(self, id: str, account: str) -> tuple[str, bytes] | None:
        """The process that kept the task last, and its state; a task of another account is none."""
        ...

    async def save(self, id: str, account: str, process: str, state: bytes, until: float) -> None:
        """Keep the task, in place of what was kept of it before."""
        ...


class TasksInMemory:
    """Keeps the latest tasks for as long as the process lives."""

    MOST: Final = 1000

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[str, bytes]] = {}

    async def find(self, id: str, account: str) -> tuple[str, bytes] | None:
        return self._kept.get((account, id))

    async def save(self, id: str, account: str, process: str, state: bytes, until: float) -> None:
        self._kept.pop((account, id), None)
        self._kept[account, id] = (process, state)
        if len(self._kept) > self.MOST:
            del self._kept[next(iter(self._kept))]


def _only_us(process: str) -> bool:
    return False


HasThread = Callable[[str, str], Awaitable[bool]]
"""Whether there is a thread with this id for this account. May raise `StoreError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """By default a home without a door: nothing outlives the process, and nobody else is there."""

    sessions: SessionStore = field(default_factory=NoStore)
    tasks: TaskStore = field(default_factory=TasksInMemory)
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """Seals what clients carry for us; any process of the home opens it."""
    process: str = "this"
    """The id of this process, never used again."""
    is_alive: Callable[[str], bool] = _only_us
    """Whether the process with this id still works in this home."""
    has_thread: HasThread | None = None
    """None where there are no threads."""
