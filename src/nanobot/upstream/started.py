"""A process that serves HTTP: waiting until it does, and noticing when it no longer can."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from nanobot.aio import task_group
from nanobot.http import Http, HttpError
from nanobot.upstream.definition import Remote
from nanobot.upstream.process import Child, StartFailed
from nanobot.wire.client import ConnectionLost

POLL_S: Final = 0.5
ANSWER_S: Final = 5.0


class EndedTooSoon(StartFailed):
    """It ended before it answered, perhaps because somebody else had taken its port meanwhile."""


@asynccontextmanager
async def answering(child: Child, remote: Remote, http: Http) -> AsyncGenerator[None]:
    """The block begins when `child` answers at `remote`, whatever its answer. The caller has the deadline.

    Raises `EndedTooSoon` if the process ends before that, `ConnectionLost` if it ends within the block.
    """
    has_answered = False

    async def watch() -> None:
        reason = await child.ended()
        raise ConnectionLost(reason, maybe_sent=True) if has_answered else EndedTooSoon(reason)

    async with task_group() as group:
        group.start_soon(child.drain_stdout)
        group.start_soon(watch)
        while not await _answers(remote, http):  # noqa: ASYNC110  # only the server itself could tell
            await anyio.sleep(POLL_S)
        has_answered = True
        yield
        group.cancel_scope.cancel()


async def _answers(remote: Remote, http: Http) -> bool:
    try:
        async with http.stream("GET", remote.url, headers=remote.headers, idle_s=ANSWER_S):
            return True
    except HttpError:
        return False
