"""An MCP server made with the official SDK that answers calls with tasks (`io.modelcontextprotocol/tasks`).

Its tools are those that the official conformance suite looks for, and one for tests of ours. Run as
`python -m tests.peers.task_server [FILE]`; it prints the address it serves. What becomes of its tasks goes to
the file, a line each.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.abc
import mcp_types as types
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError

TASKS = "io.modelcontextprotocol/tasks"
TTL_MS = 60_000
SEEN = Path(sys.argv[1]) if len(sys.argv) > 1 else None


def note(line: str) -> None:
    if SEEN is not None:
        with SEEN.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def said(text: str, *, error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **({"isError": True} if error else {})}


def question(message: str, field: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


class Task:
    """`work` gives the result; it may ask for input and say how far it is."""

    def __init__(self) -> None:
        self.id = str(uuid4())
        self.created = datetime.now(UTC).isoformat()
        self.message = ""
        self.questions: dict[str, dict[str, Any]] = {}
        self.answers: dict[str, Any] = {}
        self.answered = anyio.Event()
        self.scope = anyio.CancelScope()
        self.end: dict[str, Any] = {}

    async def run(self, work: Callable[[Task], Awaitable[dict[str, Any]]]) -> None:
        self.end = {"status": "cancelled"}
        with self.scope:
            try:
                self.end = {"status": "completed", "result": await work(self)}
            except MCPError as e:
                self.end = {"status": "failed", "error": {"code": e.code, "message": e.message}}

    async def ask(self, **questions: dict[str, Any]) -> Mapping[str, Any]:
        self.questions.update(questions)
        while self.questions:
            self.answered = anyio.Event()
            await self.answered.wait()
        return self.answers

    def about(self, *, is_running: bool) -> dict[str, Any]:
        status = "input_required" if self.questions else "working"
        about = {"taskId": self.id, "createdAt": self.created, "lastUpdatedAt": self.created}
        about |= {"ttlMs": TTL_MS, "pollIntervalMs": 50}
        if self.message:
            about["statusMessage"] = self.message
        if not is_running:
            return {**about, **self.end}
        return {**about, "status": status, **({"inputRequests": self.questions} if self.questions else {})}


async def slow_compute(task: Task, arguments: Mapping[str, Any]) -> dict[str, Any]:
    await anyio.sleep(arguments.get("seconds", 0))
    return said(f"computed {arguments.get('label', '')}")


async def failing_job(task: Task, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return said("the job failed", error=True)


async def protocol_error_job(task: Task, arguments: Mapping[str, Any]) -> dict[str, Any]:
    raise MCPError(types.INTERNAL_ERROR, "the job could not be run")


async def confirm_delete(task: Task, arguments: Mapping[str, Any]) -> dict[str, Any]:
    answers = await task.ask(confirm=question("Really?", "confirm"))
    return said(f"delete: {answers['confirm']['action']} {answers['confirm'].get('content', {})}")


async def multi_input(task: Task, arguments: Mapping[str, Any]) -> dict[str, Any]:
    answers = await task.ask(first=question("One?", "first"), second=question("Two?", "second"))
    return said(" ".join(str(answers[key]["content"]) for key in ("first", "second")))


async def narrate(task: Task, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Says how far it is, and goes on once it was asked after that."""
    for message in ("half way", "nearly there"):
        task.message = message
        await anyio.sleep(0.3)
    return said("told everything")


async def test_tool_with_task(task: Task, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return said(f"Hello {arguments['user_name']}")


JOBS: Mapping[str, Callable[[Task, Mapping[str, Any]], Awaitable[dict[str, Any]]]] = {
    "slow_compute": slow_compute,
    "failing_job": failing_job,
    "protocol_error_job": protocol_error_job,
    "confirm_delete": confirm_delete,
    "multi_input": multi_input,
    "narrate": narrate,
    "test_tool_with_task": test_tool_with_task,
}
REQUIRED = ("failing_job", "test_tool_with_task")


class Target(types.RequestParams):
    task_id: str


class Update(Target):
    input_responses: dict[str, Any]


class Tasks(Extension):
    identifier = TASKS

    def __init__(self) -> None:
        self.running: dict[str, Task] = {}
        self.over: dict[str, Task] = {}
        self.group: anyio.abc.TaskGroup | None = None

    def methods(self) -> Sequence[MethodBinding]:
        return (
            MethodBinding("tasks/get", Target, self.get),
            MethodBinding("tasks/update", Update, self.update),
            MethodBinding("tasks/cancel", Target, self.cancel),
        )

    async def intercept_tool_call(self, params: Any, ctx: Any, call_next: Any) -> Any:
        job = JOBS.get(params.name)
        if job is None:
            return await call_next(ctx)
        extensions: Mapping[str, Any] = ctx.session.client_capabilities.extensions or {}
        is_declared = TASKS in extensions
        if not is_declared and params.name in REQUIRED:
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            raise MCPError(-32021, "this tool needs tasks", needed)
        arguments = dict(params.arguments or {})
        if params.name == "test_tool_with_task":
            answers: Mapping[str, Any] = params.input_responses or {}
            if "user_name" not in answers:
                asked = {"user_name": question("Your name?", "name")}
                return {"resultType": "input_required", "inputRequests": asked, "requestState": "asked"}
            arguments["user_name"] = answers["user_name"].content["name"]
        task = Task()
        if not is_declared:
            return await job(task, arguments)
        note(f"began {params.name}")
        assert self.group is not None
        self.running[task.id] = task
        self.group.start_soon(self.run, task, job, arguments)
        return {"resultType": "task", **task.about(is_running=True)}

    async def run(self, task: Task, job: Any, arguments: Mapping[str, Any]) -> None:
        try:
            await task.run(lambda task: job(task, arguments))
        finally:
            note(f"ended {task.end.get('status')}")
            self.over[task.id] = self.running.pop(task.id)

    async def get(self, ctx: Any, params: Target) -> dict[str, Any]:
        task = self.find(params.task_id)
        note("asked")
        return task.about(is_running=params.task_id in self.running)

    async def update(self, ctx: Any, params: Update) -> dict[str, Any]:
        task = self.find(params.task_id)
        for key, answer in params.input_responses.items():
            if task.questions.pop(key, None) is not None:
                task.answers[key] = answer
        task.answered.set()
        return {}

    async def cancel(self, ctx: Any, params: Target) -> dict[str, Any]:
        self.find(params.task_id).scope.cancel()
        note("told to cancel")
        return {}

    def find(self, id: str) -> Task:
        task = self.running.get(id) or self.over.get(id)
        if task is None:
            raise MCPError(types.INVALID_PARAMS, f"unknown task {id!r}")
        return task


TASK_CALLS = Tasks()
server = MCPServer("tasks", version="1.0", extensions=[TASK_CALLS])


@server.tool()
async def greet(name: str) -> str:
    """Answers at once."""
    return f"Hello, {name}!"


def offer(name: str) -> None:
    async def job(seconds: float = 0, label: str = "") -> str:
        raise AssertionError("answered by the extension")

    server.add_tool(job, name=name, description=f"Answered with a task: {name}.")


for name in JOBS:
    offer(name)


async def serve() -> None:
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"serving http://127.0.0.1:{listener.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning")
    async with anyio.create_task_group() as group:
        TASK_CALLS.group = group
        await uvicorn.Server(config).serve(sockets=[listener])
        group.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(serve)
