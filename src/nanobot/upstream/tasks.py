"""Tools whose servers answer with a task: we come back for the result, so that a call stays a call.

Two dialects: the extension `io.modelcontextprotocol/tasks` of the modern era, in which the server alone
decides, and the `tasks/*` of 2025-11-25, in which some tools can only be called as one.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal

import anyio
import msgspec

from nanobot.errors import UpstreamError, UpstreamTimeout, UpstreamUnavailable
from nanobot.narrow import object_of
from nanobot.upstream.inputs import answers_of
from nanobot.wire.call import Call
from nanobot.wire.client import Connected
from nanobot.wire.extensions import TASKS, declares
from nanobot.wire.notifications import PROGRESS
from nanobot.wire.outgoing import Outgoing
from nanobot.wire.rpc import INTERNAL_ERROR, Payload, RpcError
from nanobot.wire.source import Entry
from nanobot.wire.versions import META_PREFIX

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 5.0
"""Pauses between questions to a server that does not say how often it wants to be asked."""
SHORTEST_WISH_S: Final = 0.05
LONGEST_WISH_S: Final = 60.0
"""How far we follow a server that says it."""
FAREWELL_S: Final = 5.0
"""Time for telling a server that nobody wants the result any more."""
PATIENCE: Final = 5
"""How often in a row a server may be out of reach before a task is given up."""
TTL_MS: Final = 3_600_000
"""How long a server of 2025-11-25 is asked to keep a task."""

_MARK: Final = b'"taskId"'
_RELATED: Final = META_PREFIX + "related-task"

Send = Callable[[str, Payload, Call], Awaitable[Payload]]
"""Makes a request (method, params). Raises as `Source.request` does."""
ListTools = Callable[[], Awaitable[Sequence[Entry]]]

_encode = msgspec.json.Encoder().encode


class _Task(
    msgspec.Struct,
    rename={
        "id": "taskId",
        "message": "statusMessage",
        "questions": "inputRequests",
        "poll_ms": "pollIntervalMs",
        "poll_legacy_ms": "pollInterval",
        "kind": "resultType",
    },
):
    """What a server says of a task, in either dialect."""

    id: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    message: str = ""
    poll_ms: float | None = None
    poll_legacy_ms: float | None = None
    questions: Mapping[str, Mapping[str, Any]] = {}
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: Mapping[str, Any] = {}
    kind: str = ""


class _Created(msgspec.Struct):
    task: _Task | None = None


_decode = msgspec.json.Decoder(_Task).decode
_decode_created = msgspec.json.Decoder(_Created).decode


class TaskCalls(ABC):
    """The calls of one server's tools. `send` makes requests to it."""

    def __init__(self, server: str, send: Send) -> None:
        self._server = server
        self._send = send

    async def prepared(self, params: Payload) -> Payload:
        """The params of a `tools/call` as this server wants them."""
        return params

    async def finished(self, result: Payload, call: Call, timeout_s: float) -> Payload:
        """The result of a tool whose call was answered with `result`, which may be a task.

        `timeout_s` is how long the server may give no sign of life. Raises as `Source.request` does. Whoever
        stops waiting has the server told so.
        """
        if _MARK not in result.raw:  # nearly always; spares decoding
            return result
        task = self._created(result)
        if task is None:
            return result
        if call.deferral is not None:
            call.deferral.after(0)
        is_over = False
        try:
            outcome = await self._followed(task, call, timeout_s)
            is_over = True
            return outcome
        except RpcError:
            is_over = True
            raise
        except TimeoutError as e:
            raise UpstreamTimeout(self._server, timeout_s) from e
        finally:
            if not is_over:
                await self._give_up(task, call)

    @abstractmethod
    def _created(self, result: Payload) -> _Task | None:
        """The task that `result` consists of, if it is one."""

    @abstractmethod
    def _is_over(self, task: _Task) -> bool:
        """Whether there is nothing more to wait for."""

    @abstractmethod
    async def _result(self, task: _Task, call: Call) -> Payload:
        """The result of the tool, of a task that is over. Raises `RpcError` if there is none."""

    @abstractmethod
    async def _put_questions(self, task: _Task, waiting: Outgoing, asked: set[str]) -> None:
        """Have the questions of a task answered that are not in `asked`."""

    async def _followed(self, task: _Task, call: Call, timeout_s: float) -> Payload:
        waiting = Outgoing(0, call, timeout_s)
        asked: set[str] = set()
        said, told, pause_s = "", 0, FIRST_PAUSE_S
        async with waiting.clock:
            while not self._is_over(task):
                await self._put_questions(task, waiting, asked)
                if task.message and task.message != said:
                    said, told = task.message, told + 1
                    waiting.hear(PROGRESS, Payload.of({"progress": told, "message": said}))
                await anyio.sleep(_pause(task, pause_s))
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
                task = await self._asked_again(task, call)
                waiting.wind_up()
        return await self._result(task, call)

    async def _asked_again(self, task: _Task, call: Call) -> _Task:
        failures = 0
        while True:
            try:
                answer = await self._send("tasks/get", _named(task), _quiet(call))
                return _decode(answer.raw)
            except UpstreamUnavailable:
                failures += 1
                if failures >= PATIENCE:
                    raise
                await anyio.sleep(_pause(task, LONGEST_PAUSE_S))
            except (msgspec.DecodeError, RecursionError) as e:
                raise RpcError(
                    INTERNAL_ERROR, f"the server said something of a task that is none: {e}"
                ) from e

    async def _give_up(self, task: _Task, call: Call) -> None:
        with anyio.move_on_after(FAREWELL_S, shield=True):
            try:
                await self._send("tasks/cancel", _named(task), _quiet(call))
            except (RpcError, UpstreamError) as e:
                log.debug("task not cancelled", extra={"server": self._server, "reason": str(e)})


class ModernTaskCalls(TaskCalls):
    """With the extension `io.modelcontextprotocol/tasks`."""

    def _created(self, result: Payload) -> _Task | None:
        try:
            task = _decode(result.raw)
        except (msgspec.DecodeError, RecursionError):
            return None
        return task if task.kind == "task" else None

    def _is_over(self, task: _Task) -> bool:
        return task.status not in ("working", "input_required")

    async def _put_questions(self, task: _Task, waiting: Outgoing, asked: set[str]) -> None:
        questions = {key: question for key, question in task.questions.items() if key not in asked}
        if not questions:
            return
        asked.update(questions)
        answers = await answers_of(questions, waiting.answer)
        params = Payload.of({"taskId": task.id, "inputResponses": answers})
        await self._send("tasks/update", params, _quiet(waiting.call))

    async def _result(self, task: _Task, call: Call) -> Payload:
        match task.status:
            case "completed" if isinstance(task.result, msgspec.Raw):
                return Payload.encoded(task.result)
            case "failed":
                raise _refusal(task.error)
            case _:
                raise RpcError(INTERNAL_ERROR, f"the task ended without a result ({task.status})")


class LegacyTaskCalls(TaskCalls):
    """With the `tasks/*` of 2025-11-25. Tools that need a task are offered as ordinary ones."""

    def __init__(self, server: str, send: Send, list_tools: ListTools) -> None:
        """`list_tools` is asked once, before the first call, unless `ordinary` saw the tools by then."""
        super().__init__(server, send)
        self._list_tools = list_tools
        self._required: frozenset[str] | None = None

    def ordinary(self, tools: Sequence[Entry]) -> Sequence[Entry]:
        """`tools` as they are for those who call them through us."""
        required: set[str] = set()
        seen: list[Entry] = []
        for tool in tools:
            execution = object_of(Payload.encoded(tool.definition.members().get("execution", b"null")).value)
            if execution.get("taskSupport") == "required":
                required.add(tool.key)
                tool = Entry(tool.key, _without_execution(tool.definition, execution))
            seen.append(tool)
        self._required = frozenset(required)
        return seen

    async def prepared(self, params: Payload) -> Payload:
        if self._required is None:
            self.ordinary(await self._list_tools())
        members: dict[str, Any] = dict(params.members())
        name = Payload.encoded(members.get("name", b"null")).value
        if not self._required or name not in self._required:
            return params
        members["task"] = {"ttl": TTL_MS}
        return Payload.encoded(_encode(members))

    def _created(self, result: Payload) -> _Task | None:
        try:
            return _decode_created(result.raw).task
        except (msgspec.DecodeError, RecursionError):
            return None

    def _is_over(self, task: _Task) -> bool:
        return task.status != "working"

    async def _put_questions(self, task: _Task, waiting: Outgoing, asked: set[str]) -> None:
        pass  # they come while the result is fetched

    async def _result(self, task: _Task, call: Call) -> Payload:
        # The answer comes when the task is over; what the server asks until then comes on the same way.
        result = await self._send("tasks/result", _named(task), call)
        members: dict[str, Any] = dict(result.members())
        meta = dict(Payload.encoded(members.pop("_meta", b"null")).object())
        meta.pop(_RELATED, None)  # means nothing to those who made a call
        if meta:
            members["_meta"] = meta
        return Payload.encoded(_encode(members))


def task_calls(server: str, connected: Connected, send: Send, list_tools: ListTools) -> TaskCalls | None:
    """How results of the server's tasks are fetched; None for a server that has none."""
    capabilities = connected.capabilities
    if connected.era == "modern":
        return ModernTaskCalls(server, send) if declares(capabilities, TASKS) else None
    requests = object_of(object_of(capabilities.get("tasks")).get("requests"))
    if "call" in object_of(requests.get("tools")):
        return LegacyTaskCalls(server, send, list_tools)
    return None


def _named(task: _Task) -> Payload:
    return Payload.of({"taskId": task.id})


def _quiet(call: Call) -> Call:
    """The company of what we ask about a call for ourselves."""
    return Call(to_server=call.to_server)


def _pause(task: _Task, otherwise_s: float) -> float:
    wish = task.poll_ms if task.poll_ms is not None else task.poll_legacy_ms
    return otherwise_s if wish is None else min(max(wish / 1000, SHORTEST_WISH_S), LONGEST_WISH_S)


def _refusal(error: Mapping[str, Any]) -> RpcError:
    code, message, data = error.get("code"), error.get("message"), error.get("data")
    return RpcError(
        code if isinstance(code, int) else INTERNAL_ERROR,
        message if isinstance(message, str) else "the task failed",
        None if data is None else Payload.of(data),
    )


def _without_execution(tool: Payload, execution: Mapping[str, Any]) -> Payload:
    members: dict[str, Any] = dict(tool.members())
    rest = {key: value for key, value in execution.items() if key != "taskSupport"}
    if rest:
        members["execution"] = rest
    else:
        del members["execution"]
    return Payload.encoded(_encode(members))
