"""What an endpoint does beside its requests: tasks that write to clients, and one clock for slow answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from nanobot.aio import task_group

log = logging.getLogger(__name__)

GRACE_S: Final = 2.0
"""How long tasks may still take when their owner ends."""


StartSoon = Callable[[Callable[[], Coroutine[Any, Any, None]]], bool]
"""Starts a task that outlives its caller; False if it is too late for that."""


class SideTasks:
    """Owner of every task that outlives the call which started it."""

    def __init__(self) -> None:
        self._group: TaskGroup | None = None
        self._ending = anyio.Event()

    def start_soon(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Start a task; False if it is too late for that. Its failure is logged and harms no other."""
        if self._group is None:
            return False
        self._group.start_soon(_guarded, work)
        return True

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Own the tasks until `end`. Shielded, so that streams are finished and not cut off."""
        with anyio.CancelScope(shield=True):
            try:
                async with task_group() as group:
                    self._group = group
                    task_status.started()
                    await self._ending.wait()
                    group.cancel_scope.deadline = anyio.current_time() + GRACE_S
            finally:
                self._group = None

    def end(self) -> None:
        """Let what runs come to its end, and cut off what does not in time."""
        self._ending.set()


async def _guarded(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await work()
    except Exception:  # the boundary of one side task
        log.exception("a side task failed")


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
