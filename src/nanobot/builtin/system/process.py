"""Running a program to its end, and nothing of it beyond its end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import Process

from nanobot.aio import task_group

_START_S = 10
_GRACE_S = 2
"""Between asking the processes to end and ending them."""

_DRAIN_S = 1
"""How long the end of the output is waited for once everything should have ended."""

_CHUNK = 64 * 1024

Sink = Callable[[bytes], None]
"""Takes what a program prints, as it comes. May raise, which ends the program."""


async def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    out: Sink,
    err: Sink | None = None,
    stdin: int = subprocess.DEVNULL,
) -> int:
    """Run `argv` in a process group of its own; the exit status, or 128 + the signal that ended it.

    Without `err` both outputs go to `out`, in the order they were printed. When this returns or raises, the
    whole group is gone: children that were left in the background, and after a timeout (`TimeoutError`) or
    a cancellation everything (SIGTERM, then SIGKILL). Raises `OSError` if the program cannot be started.
    """
    pipes = [_Pipe(out)] if err is None else [_Pipe(out), _Pipe(err)]
    try:
        # Shielded: a cancellation in the middle of it would end the program and forget its children.
        with anyio.fail_after(_START_S, shield=True):
            process = await anyio.open_process(
                argv,
                stdin=stdin,
                stdout=pipes[0].writer,
                stderr=pipes[-1].writer,
                cwd=cwd,
                env=env,
                start_new_session=True,
            )
        try:
            with anyio.fail_after(timeout_s):
                async with task_group() as pumps:
                    for pipe in pipes:
                        pumps.start_soon(pipe.pump)
                    status = await process.wait()
                    pumps.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(2 * _GRACE_S, shield=True):
                await _end(process)
            # What was printed is in the pipes by now, and the last process to go closes them. One that left
            # the group may hold them open for hours; it is not waited for.
            with anyio.move_on_after(_DRAIN_S, shield=True):
                for pipe in pipes:
                    await pipe.pump()
    finally:
        for pipe in pipes:
            pipe.close()
    return status if status >= 0 else 128 - status


class _Pipe:
    """A pipe of our own: unlike one of the event loop's it does not keep a process from being reaped."""

    def __init__(self, sink: Sink) -> None:
        self.reader, self.writer = os.pipe()
        self._writer: int | None = self.writer
        self._sink = sink

    async def pump(self) -> None:
        """Pass on what comes until the last writer is gone."""
        self._close_writer()
        while True:
            await anyio.wait_readable(self.reader)
            chunk = os.read(self.reader, _CHUNK)
            if not chunk:
                return
            self._sink(chunk)

    def close(self) -> None:
        os.close(self.reader)
        self._close_writer()

    def _close_writer(self) -> None:
        """Let go of our end: only the program's processes hold the pipe then."""
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None


async def _end(process: Process) -> None:
    """End the process group: politely if the program still runs, and in any case for good."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with anyio.move_on_after(_GRACE_S):
            await process.wait()
    _signal(process, signal.SIGKILL)
    await process.wait()


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # nobody left; macOS: only zombies left
        os.killpg(process.pid, number)
