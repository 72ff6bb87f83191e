"""MCP servers as child processes, spoken to over their stdin and stdout.

A child sees only the environment it is given, leads its own process group below a warden (`warden.py`), and
is gone with everything it started when the block that opened it ends, or when we die.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import anyio
from anyio import to_thread

from nanobot.aio import task_group
from nanobot.errors import NanobotError
from nanobot.upstream.secrecy import RecentSecrets, Secrecy
from nanobot.wire.duplex import MessageTooLong
from nanobot.wire.lines import LineSplitter

log = logging.getLogger(__name__)

MAX_MESSAGE: Final = 64 * 1024 * 1024
MAX_STDERR_LINE: Final = 8 * 1024
KEPT_STDERR_LINES: Final = 20
CHUNK: Final = 64 * 1024

CLOSE_S: Final = 2.0
"""How long a server may take to leave after its stdin was closed, before it is made to."""
KILL_S: Final = 4.0
"""How long the warden may take; it gives the server two seconds between SIGTERM and SIGKILL."""
EXIT_S: Final = 1.0
"""How long after the end of its output a server may take to exit, for its exit status to be told."""

WARDEN: Final = Path(__file__).with_name("warden.py")


class StartFailed(NanobotError):
    """The process could not be started; the message says why and fits after "… is not available: "."""

    code = "process.start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to run. Everything is expanded; `env` is the whole environment of the child."""

    server: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    secrets: Sequence[str] = field(default=(), repr=False)
    """Texts that the server may print but that must not reach a log or an error; longest first."""
    cage: Cage | None = None
    """None: it runs with all the rights of this process."""
    afterwards: Sequence[str] = ()
    """A command that is run when the server has ended, also if we are gone by then."""


class Cage(Protocol):
    """What confines a process."""

    def enter(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str]
    ) -> tuple[Sequence[str], Mapping[str, str]]:
        """The command line that runs `argv` confined, and the environment for it. Runs in a thread."""
        ...


@asynccontextmanager
async def open_process(
    command: Command, *, recent: RecentSecrets | None = None, max_message_bytes: int = MAX_MESSAGE
) -> AsyncGenerator[Child]:
    """Run `command` until the block ends. Raises `StartFailed`.

    What it prints is kept and logged without the secrets of the command and those that are `recent`.
    """
    _check(command)
    lifeline, ours = os.pipe()
    try:
        try:
            process = await _start(command, lifeline)
        except OSError as e:
            raise StartFailed(f"{command.argv[0]!r} cannot be run: {e.strerror}") from e
        finally:
            os.close(lifeline)
        secrecy = Secrecy(RecentSecrets() if recent is None else recent, command.secrets)
        child = Child(command, process, secrecy, max_message_bytes)
        async with task_group() as group:
            group.start_soon(child.drain_stderr)
            try:
                yield child
            finally:
                with anyio.CancelScope(shield=True):
                    await child.aclose()
                    if not await _gone(process, CLOSE_S):
                        os.close(ours)
                        ours = -1
                        if not await _gone(process, KILL_S):
                            _kill(process)
                    await child.discard_output()
                group.cancel_scope.cancel()
    finally:
        if ours >= 0:
            os.close(ours)


class Child:
    """A running server; satisfies `Duplex`. Made by `open_process`."""

    def __init__(self, command: Command, process: Process, secrecy: Secrecy, max_message_bytes: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._command = command
        self._process = process
        self._secrecy = secrecy
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._stderr = process.stderr
        self._lines = LineSplitter(max_message_bytes)
        self._at_end = False
        self._last_words: deque[str] = deque(maxlen=KEPT_STDERR_LINES)
        self._silent = anyio.Event()  # stderr has ended

    @property
    def pid(self) -> int:
        """The process id of the warden, whose child the server is."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, None while it runs."""
        return self._process.returncode

    async def send(self, message: bytes) -> None:
        # First wait for room, then hand the whole line over in one step: whoever is cancelled here has
        # written either nothing or everything, and a server that does not read holds up only its callers.
        try:
            await self._stdin.drain()
        except (ConnectionError, RuntimeError) as e:
            raise anyio.BrokenResourceError from e
        if self._stdin.is_closing():
            raise anyio.BrokenResourceError
        self._stdin.write(message + b"\n")

    async def receive(self) -> bytes:
        while (line := self._lines.next()) is None:
            if self._at_end:
                raise anyio.EndOfStream
            if chunk := await self._stdout.read(CHUNK):
                self._lines.feed(chunk)
            else:
                self._at_end = True
                self._lines.finish()
        return line

    async def drain_stdout(self) -> None:
        """Read and forget what the server prints: for one that does not speak over its output."""
        while await self._stdout.read(CHUNK):
            pass

    async def ended(self) -> str:
        """Wait for the server to end by itself; why it did."""
        await self._process.wait()
        return await self.explain()

    async def aclose(self) -> None:
        """Close the server's stdin, which asks it to leave."""
        self._stdin.close()

    async def discard_output(self) -> None:
        """Read a server that is gone to its end: a pipe that still holds something is not closed."""
        with anyio.move_on_after(EXIT_S):
            while await self._stdout.read(CHUNK):
                pass

    async def explain(self) -> str:
        """Why the server is gone: its exit status and what it said last, without secrets."""
        with anyio.move_on_after(EXIT_S):
            await self._process.wait()
            await self._silent.wait()
        status = self._process.returncode
        words = self._secrecy.hide("\n".join(self._last_words))
        said = f"; its last output was:\n{words}" if words else ""
        return (f"it closed its output{said}") if status is None else f"it {_ending(status)}{said}"

    async def drain_stderr(self) -> None:
        """Keep the last lines of what the server says besides its messages. Run by `open_process`."""
        lines = LineSplitter(MAX_STDERR_LINE)
        while chunk := await self._stderr.read(CHUNK):
            lines.feed(chunk)
            self._keep(lines)
        lines.finish()
        self._keep(lines)
        self._silent.set()

    def _keep(self, lines: LineSplitter) -> None:
        while True:
            try:
                line = lines.next()
            except MessageTooLong:
                line = b"(a line that was too long)"
            if line is None:
                return
            text = self._secrecy.hide(line.decode("utf-8", "replace"))
            self._last_words.append(text)
            if log.isEnabledFor(logging.DEBUG):
                log.debug("mcp stderr", extra={"server": self._command.server, "line": text})


async def _start(command: Command, lifeline: int) -> Process:
    argv, env = list(command.argv), command.env
    if command.cage is not None:
        entered, env = await to_thread.run_sync(command.cage.enter, argv, command.cwd, env)
        argv = list(entered)
    if sys.platform != "win32":
        after = ["--after", str(len(command.afterwards)), *command.afterwards] if command.afterwards else []
        argv = [sys.executable, "-I", "-S", str(WARDEN), str(lifeline), *after, *argv]
    return await asyncio.create_subprocess_exec(
        *argv,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=dict(env),
        cwd=command.cwd,
        limit=4 * CHUNK,
        pass_fds=() if sys.platform == "win32" else (lifeline,),
        start_new_session=sys.platform != "win32",
    )


def _check(command: Command) -> None:
    """Say beforehand, and better than the system would, what will go wrong."""
    if not command.cwd.is_dir():
        raise StartFailed(f"its working directory {str(command.cwd)!r} does not exist")
    name = command.argv[0]
    where = command.cwd / name if os.sep in name else name
    if shutil.which(where, path=command.env.get("PATH", os.defpath)) is None:
        raise StartFailed(f"the command {name!r} was not found; install it or write its full path")


async def _gone(process: Process, within_s: float) -> bool:
    with anyio.move_on_after(within_s):
        await process.wait()
    return process.returncode is not None


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()


def _ending(status: int) -> str:
    number = -status if status < 0 else status - 128
    if number > 0 and status != 255:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(number).name}"
    return f"exited with status {status}"
