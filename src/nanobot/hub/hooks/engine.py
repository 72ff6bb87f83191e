"""A script in a JavaScript engine of its own. Everything here happens in one thread, the same for its life.

The engine offers the language and nothing else: no files, no network, no timers, no environment but what is
given to it. Types of TypeScript are taken off by `vendor/sucrase.js`, run in an engine of the same kind.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from nanobot.hub.hooks.hook import HookFailed

log = logging.getLogger(__name__)

MAX_MEMORY: Final = 128 * 1024 * 1024
MAX_STACK: Final = 768 * 1024
MAX_FILES: Final = 64
SUFFIXES: Final = (".ts", ".js", ".mjs")

_IS_MODULE = re.compile(r"^\s*(?:import|export)\b", re.MULTILINE)
_REQUIRED = re.compile(r"""\brequire\(\s*(["'])(\.{1,2}/[^"'\n]+)\1\s*\)""")
# As JSON: the engine may keep a string in pieces, and such a string cannot be handed to Python.
_TRANSFORM: Final = """(source, names) => JSON.stringify(sucrase.transform(source, {
    transforms: JSON.parse(names), disableESTransforms: true, preserveDynamicImport: true,
}).code)"""


class _Outcome(msgspec.Struct):
    kind: str
    text: str
    detail: str = ""
    lines: list[str] = []


class _Context(Protocol):
    """What is used of `quickjs.Context`."""

    def eval(self, code: str) -> Any: ...

    def set(self, name: str, value: Any) -> None: ...

    def execute_pending_job(self) -> bool: ...


class Engine:
    """One file and what it imports, loaded as they were then."""

    def __init__(self, path: Path, root: Path, env: Mapping[str, str], *, limit_s: float) -> None:
        """Only files below `root` can be imported. `limit_s` is processor time of the whole program, for one
        call; it ends what nobody waits for any more. Raises `HookFailed`."""
        self._path = path
        self._root = root
        self._limit_s = limit_s
        self._context = _context(limit_s)
        self._stamps: dict[Path, tuple[int, int]] = {}
        self._stripper: Callable[[str, str], str] | None = None
        self._js: dict[str, Any] = {}
        try:
            prelude = self._context.eval(_resource("prelude.js"))
            self._context.set("__nanobot", prelude)
            for name in ("environment", "define", "start", "result"):
                self._js[name] = self._context.eval(f"__nanobot.{name}")
            self._context.eval("delete globalThis.__nanobot")
            self._js["environment"](msgspec.json.encode(dict(env)).decode())
            self._define(path)
        except _js_exception() as e:
            log.warning("script cannot be loaded", extra={"file": str(path), "reason": str(e)})
            raise HookFailed(f"{path.name} cannot be loaded; the log has the details") from e
        except OSError as e:
            raise HookFailed(f"{path.name} cannot be read: {e.strerror}") from e
        finally:
            self._stripper = None

    @property
    def is_current(self) -> bool:
        """Whether the files are still as they were."""
        try:
            return all(_stamp(path) == stamp for path, stamp in self._stamps.items())
        except OSError:
            return False

    def call(self, export: str, payload: bytes) -> Any:
        """What the function gave, awaited. Raises `HookFailed`."""
        deadline = time.monotonic() + self._limit_s
        try:
            self._js["start"](str(self._path), export, payload.decode())
            while self._context.execute_pending_job():
                if time.monotonic() > deadline:
                    raise HookFailed("it does not come to an end")
            outcome = msgspec.json.decode(self._js["result"](), type=_Outcome)
        except _js_exception() as e:
            raise HookFailed(f"it was stopped: {str(e).partition(chr(10))[0]}") from e
        for line in outcome.lines:
            log.info("hook says", extra={"file": self._path.name, "text": line})
        match outcome.kind:
            case "done":
                return msgspec.json.decode(outcome.text)
            case "missing":
                raise HookFailed(f"{self._path.name} exports no function {export or 'default'!r}")
            case "waiting":
                raise HookFailed("it waits for something that never happens")
            case _:
                where = {"file": str(self._path), "detail": outcome.detail[:4000]}
                log.warning("hook threw", extra=where)
                raise HookFailed(f"it threw {outcome.text[:80]}; the log has the details")

    def _define(self, path: Path) -> None:
        """Compile `path` and what it imports."""
        if path in self._stamps:
            return
        if len(self._stamps) >= MAX_FILES:
            raise HookFailed(f"{self._path.name} imports more than {MAX_FILES} files")
        self._stamps[path] = _stamp(path)
        source = self._javascript(path)
        imports = {match[2]: self._imported(path, match[2]) for match in _REQUIRED.finditer(source)}
        run = self._context.eval(f"(function (exports, module, require) {{{source}\n}})")
        links = {written: str(found) for written, found in imports.items() if found is not None}
        self._js["define"](str(path), msgspec.json.encode(links).decode(), run)
        for found in imports.values():
            if found is not None:
                self._define(found)

    def _javascript(self, path: Path) -> str:
        source = path.read_text(encoding="utf-8")
        names = ["typescript", "imports"] if path.suffix == ".ts" else ["imports"]
        if path.suffix != ".ts" and not _IS_MODULE.search(source):
            return source
        stripper = self._stripper
        if stripper is None:
            stripping = _context(self._limit_s)
            stripping.eval(_resource("vendor/sucrase.js"))
            stripper = self._stripper = stripping.eval(_TRANSFORM)
        assert stripper is not None
        return msgspec.json.decode(stripper(source, msgspec.json.encode(names).decode()), type=str)

    def _imported(self, importer: Path, written: str) -> Path | None:
        """The file that `written` means, None if there is none that may be imported."""
        base = os.path.realpath(importer.parent / written)
        for candidate in (base, *(base + suffix for suffix in SUFFIXES)):
            if candidate.startswith(f"{self._root}{os.sep}") and os.path.isfile(candidate):
                return Path(candidate) if candidate.endswith(SUFFIXES) else None
        return None


def _js_exception() -> type[Exception]:
    return import_module("quickjs").JSException


def _context(limit_s: float) -> _Context:
    context: Any = import_module("quickjs").Context()
    context.set_memory_limit(MAX_MEMORY)
    context.set_max_stack_size(MAX_STACK)
    context.set_time_limit(limit_s)
    return context


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


@cache
def _resource(name: str) -> str:
    return files("nanobot.hub.hooks").joinpath(name).read_text(encoding="utf-8")
