"""`bash`: a command in the working folder, confined, bounded in time and output."""

from __future__ import annotations

import codecs
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from anyio import to_thread

from nanobot.builtin.server import BuiltinTool, ToolFailed
from nanobot.builtin.system.programs import Programs
from nanobot.builtin.system.workspace import Workspace, Workspaces
from nanobot.ids import new_id
from nanobot.wire.call import Call

DEFAULT_TIMEOUT_MS = 120_000
MAX_TIMEOUT_MS = 600_000
MAX_CHARACTERS = 30_000
MAX_LOG_BYTES = 64 * 1024 * 1024

_HALF = MAX_CHARACTERS // 2
_UTF_8 = codecs.getincrementaldecoder("utf-8")

_CONFINED = (
    "It sees the operating system read-only, can change only the working folder and a `/tmp` that lasts "
    "as long as the command, and has no network. "
)


def bash_tool(workspaces: Workspaces, programs: Programs, *, allowed: bool) -> BuiltinTool:
    """`allowed`: whether commands may run at all, which without a sandbox somebody must have decided."""
    return BuiltinTool(
        name="bash",
        description=(
            "Run a command with `bash -c` in the working folder and get what it prints. "
            + (_CONFINED if programs.sandbox is not None else "")
            + "It is stopped after `timeout` milliseconds (120000 unless given, 600000 at most), and "
            "what it left running ends with it. Prefer `read`, `glob` and `grep` to `cat`, `find` and "
            "`grep`."
        ),
        schema={
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The command line."},
                "timeout": {"type": "integer", "description": "Milliseconds, up to 600000."},
                "description": {"type": "string", "description": "In a few words, what the command does."},
                "workdir": {"type": "string", "description": "Folder to run in, inside the working folder."},
            },
            "required": ["command"],
        },
        run=partial(_bash, workspaces, programs, allowed),
        annotations={"destructiveHint": True, "openWorldHint": False},
    )


async def _bash(
    workspaces: Workspaces, programs: Programs, allowed: bool, arguments: dict[str, Any], call: Call
) -> dict[str, Any]:
    command: str = arguments["command"]
    if not command.strip():
        raise ToolFailed("command is required")
    if "\0" in command:
        raise ToolFailed("A command cannot hold a NUL character.")
    timeout_ms = int(arguments.get("timeout", DEFAULT_TIMEOUT_MS))
    if timeout_ms <= 0:
        raise ToolFailed("timeout must be > 0 milliseconds")
    timeout_ms = min(timeout_ms, MAX_TIMEOUT_MS)
    if not allowed:
        raise ToolFailed(
            "bash is off: commands run confined, and no working bubblewrap was found on this machine. "
            "Install it (Debian and Ubuntu: `apt install bubblewrap`; it needs user namespaces), or allow "
            "commands to run unconfined with the rights of this user."
        )
    workspace = workspaces.of(call)
    cwd = await to_thread.run_sync(_directory, workspace, arguments.get("workdir", "."))
    with Capture(workspace) as printed:
        try:
            status = await programs.run(
                ["bash", "-c", command],
                workspace,
                cwd=cwd,
                timeout_s=timeout_ms / 1000,
                out=printed.add,
                writable=True,
            )
        except TimeoutError:
            raise ToolFailed(f"command timed out after {timeout_ms} ms\n{printed.text()}".rstrip()) from None
        output = printed.text()
    if status != 0:
        text = f"Exit code {status}\n{output}"
    else:
        text = output or "Command completed successfully with no output."
    return {"content": [{"type": "text", "text": text}], "structuredContent": {"exitCode": status}}


def _directory(workspace: Workspace, path: str) -> Path:
    with workspace.place(path) as place:
        found = place.stat()
        if found is None or not stat.S_ISDIR(found.st_mode):
            raise ToolFailed(f"The folder '{place.path}' does not exist.")
        return place.path


@dataclass(slots=True)
class Capture:
    """What a command prints: the beginning and the end for the model, all of it in a file if it is long."""

    workspace: Workspace
    _decoder: codecs.IncrementalDecoder = field(default_factory=lambda: _UTF_8(errors="replace"))
    _head: str = ""
    _tail: str = ""
    _characters: int = 0
    _log: BinaryIO | None = None
    _log_note: str = ""

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        if self._log is not None:
            self._log.close()

    def add(self, chunk: bytes, *, final: bool = False) -> None:
        text = self._decoder.decode(chunk, final)
        self._characters += len(text)
        if self._characters > MAX_CHARACTERS:
            self._keep(text)
        room = _HALF - len(self._head)
        self._head += text[:room]
        self._tail = (self._tail + text[room:])[-_HALF:]

    def text(self) -> str:
        """All of it, or its two ends with a line between them that says what is missing and where it is."""
        self.add(b"", final=True)
        omitted = self._characters - MAX_CHARACTERS
        if omitted <= 0:
            return self._head + self._tail
        return f"{self._head}\n[{omitted:,} characters omitted; {self._log_note}]\n{self._tail}"

    def _keep(self, text: str) -> None:
        """Write `text` to the log. At the first call everything before it is still at hand."""
        try:
            if not self._log_note:
                self._log = self._open_log()
                text = self._head + self._tail + text
            if self._log is not None:
                self._log.write(text.encode())
                if self._log.tell() > MAX_LOG_BYTES:
                    self._log.close()
                    self._log = None
                    self._log_note = f"the first {MAX_LOG_BYTES >> 20} MiB: {self._log_note}"
        except OSError as e:
            if self._log is not None:
                with suppress(OSError):
                    self._log.close()
            self._log = None
            self._log_note = f"the full output could not be kept: {e.strerror}"

    def _open_log(self) -> BinaryIO:
        with self.workspace.own.place(f".nanobot/logs/{new_id('bash')}.log", create=True) as place:
            self._log_note = f"full output: {self.workspace.shown(place.path)}"
            return place.create()
