"""`todoWrite`: the to-do list of a conversation, replaced as a whole."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from anyio import to_thread

from nanobot.builtin.server import BuiltinTool, ToolFailed
from nanobot.builtin.system.workspace import Workspaces
from nanobot.wire.call import Call

_FILE = ".nanobot/todo.json"
_MAX_TASKS = 200


def todo_tool(workspaces: Workspaces) -> BuiltinTool:
    task = {
        "type": "object",
        "properties": {
            "content": {"type": "string", "description": "What to do: `Run the tests`."},
            "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
            "activeForm": {
                "type": "string",
                "description": "The same while it is done: `Running the tests`.",
            },
        },
        "required": ["content", "status", "activeForm"],
    }
    return BuiltinTool(
        name="todoWrite",
        description=(
            "Replace the to-do list of this conversation. Use it for work of several steps: list them, keep "
            "exactly one `in_progress`, and mark each `completed` as soon as it is."
        ),
        schema={
            "type": "object",
            "properties": {"todos": {"type": "array", "items": task, "maxItems": _MAX_TASKS}},
            "required": ["todos"],
        },
        run=partial(_todo_write, workspaces),
        annotations={"idempotentHint": True},
    )


async def _todo_write(workspaces: Workspaces, arguments: dict[str, Any], call: Call) -> str:
    todos: list[dict[str, str]] = [
        {name: task[name] for name in ("content", "status", "activeForm")} for task in arguments["todos"]
    ]
    for number, task in enumerate(todos, 1):
        for name in ("content", "activeForm"):
            if not task[name].strip():
                raise ToolFailed(f"task {number}: {name} is required")
    if sum(task["status"] == "in_progress" for task in todos) > 1:
        raise ToolFailed("only one task can be in_progress at a time")
    text = msgspec.json.format(msgspec.json.encode(todos), indent=2)
    workspace = workspaces.of(call)

    def keep() -> None:
        with workspace.own.place(_FILE, create=True) as place:
            place.replace(text, known=place.mark())

    await to_thread.run_sync(keep)
    return f"Todo list updated:\n\n{text.decode()}"
