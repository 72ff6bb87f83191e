"""A function in a JavaScript or TypeScript file as a hook: one engine and one thread for each file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import msgspec

from nanobot.hub.hooks.hook import HookFailed, JsonObject
from nanobot.wire.call import Call

if TYPE_CHECKING:
    from nanobot.hub.hooks.engine import Engine

T = TypeVar("T")

LOAD_S: Final = 20.0
IN_LINE_S: Final = 30.0
"""How long a call waits for those before it."""


class ScriptFile:
    """One file. Calls are carried out one after the other; a change of the file is seen at the next."""

    def __init__(self, path: Path, root: Path, env: Callable[[], Mapping[str, str]]) -> None:
        """`root`: below it lie the files that may be imported. `env` is asked when the file is loaded."""
        self._path = path
        self._root = root
        self._env = env
        self._engine: Engine | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._turn = anyio.Lock()

    async def call(self, export: str, payload: JsonObject, *, timeout_s: float) -> Any:
        """What the function answers. Raises `HookFailed`. After a timeout the engine is a new one."""
        body = msgspec.json.encode(payload)
        try:
            with anyio.fail_after(IN_LINE_S):
                await self._turn.acquire()
        except TimeoutError as e:
            raise HookFailed(f"other calls of it took longer than {IN_LINE_S:g} s") from e
        try:
            engine = await self._current(timeout_s)
            return await self._within(timeout_s, lambda: engine.call(export, body))
        finally:
            self._turn.release()

    def close(self) -> None:
        """Give the thread up; what runs in it ends by itself."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)
        self._thread = self._engine = None

    async def _current(self, timeout_s: float) -> Engine:
        known = self._engine
        if known is not None and await self._within(LOAD_S, lambda: known.is_current):
            return known
        from nanobot.hub.hooks.engine import Engine

        self.close()
        # Twice: the engine counts what all threads use, and must not be the first to lose patience.
        limit_s = 2 * timeout_s
        engine = await self._within(
            LOAD_S, lambda: Engine(self._path, self._root, self._env(), limit_s=limit_s)
        )
        self._engine = engine
        return engine

    async def _within(self, timeout_s: float, work: Callable[[], T]) -> T:
        """`work` in the thread of this file; a thread that does not come back is left to itself."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"hook {self._path.name}")
        is_back = False
        try:
            with anyio.fail_after(timeout_s):
                result = await asyncio.get_running_loop().run_in_executor(self._thread, work)
            is_back = True
            return result
        except TimeoutError as e:
            raise HookFailed(f"it took longer than {timeout_s:g} s") from e
        except HookFailed:
            is_back = True
            raise
        finally:
            if not is_back:
                self.close()


class ScriptHook:
    """Satisfies `Hook` with one function of a file."""

    def __init__(self, file: ScriptFile, export: str, *, timeout_s: float) -> None:
        self._file = file
        self._export = export
        self._timeout_s = timeout_s

    async def run(self, event: str, payload: JsonObject, call: Call) -> Any:
        del event, call
        return await self._file.call(self._export, payload, timeout_s=self._timeout_s)
