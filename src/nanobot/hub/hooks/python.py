"""A function in a Python file as a hook. It runs in this program and may do whatever the program may."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import anyio

from nanobot.hub.hooks.hook import HookFailed, JsonObject
from nanobot.hub.hooks.threads import LooseThreads
from nanobot.wire.call import Call

log = logging.getLogger(__name__)

MOST_THREADS: Final = 16
"""Of one file; calls that hang take up places for good."""


class PythonFile:
    """The functions of one file, read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._module: ModuleType | None = None
        self._stamp: tuple[int, int] | None = None
        self._reading = anyio.Lock()
        self._threads = LooseThreads(MOST_THREADS, f"hook {path.name}")

    async def call(self, function: str, payload: JsonObject, *, timeout_s: float) -> Any:
        """Raises `HookFailed` for whatever goes wrong; the log has the traceback."""
        where = {"file": str(self._path), "function": function}
        try:
            with anyio.fail_after(timeout_s):
                run = getattr(await self._current(), function, None)
                if not callable(run):
                    raise HookFailed(f"{self._path.name} has no function {function!r}")
                return await self._run(run, payload)
        except TimeoutError as e:
            raise HookFailed(f"it took longer than {timeout_s:g} s") from e
        except HookFailed:
            raise
        except (Exception, SystemExit) as e:  # boundary: code of a configuration, which is not to end us
            log.exception("hook raised", extra=where)
            raise HookFailed(f"it raised {type(e).__name__}; the log has the details") from e

    async def _run(self, run: Callable[[JsonObject], Any], payload: JsonObject) -> Any:
        if inspect.iscoroutinefunction(run):
            return await run(payload)
        answer = await self._threads.run(lambda: run(payload))
        return await answer if inspect.isawaitable(answer) else answer

    async def _current(self) -> ModuleType:
        async with self._reading:
            stamp = await self._threads.run(lambda: _stamp(self._path))
            if self._module is None or stamp != self._stamp:
                self._module = await self._threads.run(lambda: _load(self._path))
                self._stamp = stamp
            return self._module


class PythonHook:
    """Satisfies `Hook` with one function of a file."""

    def __init__(self, file: PythonFile, function: str, *, timeout_s: float) -> None:
        self._file = file
        self._function = function
        self._timeout_s = timeout_s

    async def run(self, event: str, payload: JsonObject, call: Call) -> Any:
        del event, call
        return await self._file.call(self._function, payload, timeout_s=self._timeout_s)


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _load(path: Path) -> ModuleType:
    # Not by an import: that would leave a compiled copy beside the file, and trust it for a second too long.
    module = ModuleType(f"nanobot_hook_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up there
    exec(compile(path.read_bytes(), path, "exec"), module.__dict__)
    return module
