"""Structured concurrency as the whole code base uses it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def task_group() -> AsyncGenerator[TaskGroup]:
    """A task group that raises a lone failure as itself, so that callers write plain `except`."""
    try:
        async with anyio.create_task_group() as group:
            yield group
    except BaseExceptionGroup as failures:
        lone = _lone(failures)
        if lone is None:
            raise
        raise lone from lone.__cause__


def _lone(failures: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """The one failure inside nested groups; None if there are several."""
    if len(failures.exceptions) != 1:
        return None
    inner = failures.exceptions[0]
    if isinstance(inner, BaseExceptionGroup):
        return _lone(cast("BaseExceptionGroup[BaseException]", inner))
    return inner
