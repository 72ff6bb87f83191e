"""`write`: a file's whole content, put in place in one step."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from anyio import to_thread

from nanobot.builtin.server import BuiltinTool, ToolFailed
from nanobot.builtin.system.paths import Mark
from nanobot.builtin.system.workspace import Seen, Workspaces
from nanobot.wire.call import Call


def write_tool(workspaces: Workspaces, seen: Seen) -> BuiltinTool:
    return BuiltinTool(
        name="write",
        description=(
            "Write a file, replacing what it held; missing folders are made. A file that exists must have "
            "been read first. Prefer `edit` for small changes."
        ),
        schema={
            "type": "object",
            "properties": {
                "file_path": {"type": "string", "description": "The file to write."},
                "content": {"type": "string", "description": "The whole new content."},
            },
            "required": ["file_path", "content"],
        },
        run=partial(_write, workspaces, seen),
        annotations={"destructiveHint": True, "idempotentHint": True},
    )


async def _write(workspaces: Workspaces, seen: Seen, arguments: dict[str, Any], call: Call) -> str:
    workspace = workspaces.of(call)
    path: str = arguments["file_path"]
    content: str = arguments["content"]

    def put() -> tuple[Path, Mark]:
        with workspace.place(path, create=True) as place:
            known = place.mark()
            if known is not None:
                require_seen(seen, workspace.conversation, place.path, known)
            return place.path, place.replace(content.encode(), known=known)

    async with seen.changing(workspace.conversation):
        where, mark = await to_thread.run_sync(put)
        seen.record(workspace.conversation, where, mark)
    return f"Successfully wrote to file: {path}"


def require_seen(seen: Seen, conversation: str, path: Path, current: Mark) -> None:
    """Raise `ToolFailed` unless the conversation knows the file as it is now."""
    known = seen.find(conversation, path)
    if known is None:
        raise ToolFailed(f"file has not been read: '{path}'. Read it first, so that nothing is lost unseen.")
    if known != current:
        raise ToolFailed(f"file changed since it was read: '{path}'. Read it again first.")
