"""What an endpoint does beside its requests: tasks that write to clients, and one clock for slow answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from nanobot.aio import task_group

GRACE_S: Final = 2.0
"""How long tasks may take to end when the endpoint stops."""


class SideTasks:
    """Owner of every task that outlives the call which started it."""

    def __init__(self) -> None:
        self._group: TaskGroup | None = None
        self._stopping = anyio.Event()

    @property
    def is_open(self) -> bool:
        return self._group is not None and not self._stopping.is_set()

    def start_soon(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Start a task; False if it is too late for that."""
        if self._group is None:
            return False
        self._group.start_soon(work)
        return True

    def stop(self) -> None:
        self._stopping.set()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Own the tasks until `stop`. Shielded: they end by themselves, or are cut off after a while."""
        with anyio.CancelScope(shield=True):
            try:
                async with task_group() as group:
                    self._group = group
                    task_status.started()
                    await self._stopping.wait()
                    group.cancel_scope.deadline = anyio.current_time() + GRACE_S
            finally:
                self._group = None


class Patience:
    """Tells of everything that is still going on after `seconds`, with one timer for all.

    A timer per request would cost more than most requests take.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[Callable[[], None], float] = {}  # in the order in which they come due
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # kept: asking for it is a system call

    def watch(self, lost: Callable[[], None]) -> None:
        """Call `lost` unless `forget` is called in time."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        self._due[lost] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._look, loop)

    def forget(self, lost: Callable[[], None]) -> None:
        self._due.pop(lost, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        while self._due:
            lost, due = next(iter(self._due.items()))
            if due > now:
                self._timer = loop.call_at(due, self._look, loop)
                return
            del self._due[lost]
            lost()
