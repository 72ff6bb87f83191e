"""Tools whose servers answer with a task: we come back for the result, so that a call stays a call.

Two dialects: the extension `io.modelcontextprotocol/tasks` of the modern era, in which the server alone
decides, and the `tasks/*` of 2025-11-25, in which some tools can only be called as one.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio
import msgspec

from nanobot.aio import task_group
from nanobot.errors import UpstreamError, UpstreamTimeout, UpstreamUnavailable
from nanobot.narrow import object_of
from nanobot.upstream.inputs import answers_of
from nanobot.wire.call import Call
from nanobot.wire.client import Connected
from nanobot.wire.extensions import TASKS, declares
from nanobot.wire.notifications import PROGRESS
from nanobot.wire.outgoing import Outgoing
from nanobot.wire.rpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, Payload, RpcError
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
PATIENCE_S: Final = 60.0
"""How long a server may be out of reach, or answer with errors, before a task is given up."""
AGAIN_S: Final = 1.0
"""Pause before the next attempt to reach it."""
TTL_MS: Final = 3_600_000
"""How long a server of 2025-11-25 is asked to keep a task."""

_MARK: Final = b'"task'
_STATUSES: Final = frozenset({"working", "input_required", "completed", "failed", "cancelled"})
_RELATED: Final = META_PREFIX + "related-task"

Send = Callable[[str, Payload, Call], Awaitable[Payload]]
"""Makes a request (method, params). Raises as `Source.request` does."""
ListTools = Callable[[Call], Awaitable[Sequence[Entry]]]
"""Reads the list of tools in the company of a call. Raises as `Source.request` does."""

_encode = msgspec.json.Encoder().encode


class _Said(
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
    """What a server says of a task, in either dialect; nothing of it is certain."""

    id: Any = None
    status: Any = None
    message: Any = None
    poll_ms: Any = None
    poll_legacy_ms: Any = None
    questions: Any = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: Any = None
    kind: Any = None


class _Created(msgspec.Struct):
    task: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class _Task:
    id: str
    status: str
    message: str
    poll_s: float | None
    questions: Mapping[str, Mapping[str, Any]]
    result: msgspec.Raw | msgspec.UnsetType
    error: Mapping[str, Any]


_decode = msgspec.json.Decoder(_Said).decode
_decode_created = msgspec.json.Decoder(_Created).decode


def _read(raw: bytes, *, id: str = "") -> _Task:
    """A task as far as it can be told; `id` is what it was called before. Raises `RpcError` (-32603)."""
    try:
        said = _decode(raw)
    except (msgspec.DecodeError, RecursionError) as e:
        raise RpcError(INTERNAL_ERROR, f"the server said something of a task that is none: {e}") from e
    named = id or said.id
    if not isinstance(named, str) or not named:
        raise RpcError(INTERNAL_ERROR, "the server answered with a task that has no taskId")
    if said.status not in _STATUSES:
        raise RpcError(INTERNAL_ERROR, f"the server gave a task no status that we know: {said.status!r:.100}")
    wish = said.poll_ms if said.poll_ms is not None else said.poll_legacy_ms
    questions = object_of(said.questions)
    return _Task(
        id=named,
        status=said.status,
        message=said.message if isinstance(said.message, str) else "",
        poll_s=wish / 1000 if isinstance(wish, int | float) and wish >= 0 else None,
        questions={key: object_of(question) for key, question in questions.items()},
        result=said.result,
        error=object_of(said.error),
    )


class TaskCalls(ABC):
    """The calls of one server's tools. `send` makes requests to it."""

    def __init__(self, server: str, send: Send) -> None:
        self._server = server
        self._send = send

    async def prepared(self, params: Payload, call: Call) -> Payload:
        """The params of a `tools/call` as this server wants them. Raises as `Source.request` does."""
        return params

    def listed(self, tools: Sequence[Entry]) -> Sequence[Entry]:
        """The server's tools as they are for those who call them through us."""
        return tools

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
            last = await self._followed(task, call, timeout_s)
            is_over = True
            return await self._result(last, call)
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

    def _questions(self, task: _Task) -> Mapping[str, Mapping[str, Any]]:
        """What is to be answered for the task to go on, by key."""
        return task.questions

    async def _followed(self, task: _Task, call: Call, timeout_s: float) -> _Task:
        """The task when it is over. It is asked for as long as it is not, also while somebody answers."""
        waiting = Outgoing(0, call, timeout_s)
        asked: dict[str, anyio.CancelScope] = {}
        said, told, pause_s = "", 0, FIRST_PAUSE_S
        async with waiting.clock, task_group() as group:
            while not self._is_over(task):
                questions = self._questions(task)
                for key, scope in asked.items():
                    if key not in questions:
                        scope.cancel()  # answered, or not asked any more
                for key, question in questions.items():
                    if key not in asked:
                        asked[key] = anyio.CancelScope()
                        group.start_soon(self._put, task, key, question, waiting, asked[key])
                if task.message and task.message != said:
                    said, told = task.message, told + 1
                    waiting.hear(PROGRESS, Payload.of({"progress": told, "message": said}))
                await anyio.sleep(_pause(task, pause_s))
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
                answer = await self._insist("tasks/get", _named(task), call)
                task = _read(answer.raw, id=task.id)
                waiting.wind_up()
            group.cancel_scope.cancel()
        return task

    async def _put(
        self,
        task: _Task,
        key: str,
        question: Mapping[str, Any],
        waiting: Outgoing,
        scope: anyio.CancelScope,
    ) -> None:
        with scope:
            answers = await answers_of({key: question}, waiting.answer)
            params = Payload.of({"taskId": task.id, "inputResponses": answers})
            await self._insist("tasks/update", params, waiting.call)

    async def _insist(self, method: str, params: Payload, call: Call) -> Payload:
        """The answer to something that may well be asked twice, also of a server that is out of reach for a
        while. Raises as `Source.request` does."""
        until = anyio.current_time() + PATIENCE_S
        while True:
            try:
                return await self._send(method, params, _quiet(call))
            except (RpcError, UpstreamUnavailable) as e:
                is_final = isinstance(e, RpcError) and e.rpc_code in (INVALID_PARAMS, METHOD_NOT_FOUND)
                if is_final or anyio.current_time() >= until:
                    raise
            await anyio.sleep(AGAIN_S)

    async def _give_up(self, task: _Task, call: Call) -> None:
        with anyio.move_on_after(FAREWELL_S, shield=True):
            try:
                await self._send("tasks/cancel", _named(task), _quiet(call))
            except (RpcError, UpstreamError) as e:
                log.debug("task not cancelled", extra={"server": self._server, "reason": str(e)})


class ModernTaskCalls(TaskCalls):
    """With the extension `io.modelcontextprotocol/tasks`."""

    def _created(self, result: Payload) -> _Task | None:
        return _read(result.raw) if _kind(result.raw) == "task" else None

    def _is_over(self, task: _Task) -> bool:
        return task.status not in ("working", "input_required")

    async def _result(self, task: _Task, call: Call) -> Payload:
        match task.status:
            case "completed" if isinstance(task.result, msgspec.Raw):
                if (kind := _kind(bytes(task.result))) not in (None, "complete"):
                    raise RpcError(INTERNAL_ERROR, f"the task ended with what is no result: {kind!r:.100}")
                return Payload.encoded(task.result)
            case "failed":
                raise _refusal(task.error)
            case _:
                raise RpcError(INTERNAL_ERROR, f"the task ended without a result ({task.status})")


class LegacyTaskCalls(TaskCalls):
    """With the `tasks/*` of 2025-11-25. Tools that need a task are offered as ordinary ones."""

    def __init__(self, server: str, send: Send, list_tools: ListTools) -> None:
        """`list_tools` is asked once, before the first call, unless `listed` saw the tools by then."""
        super().__init__(server, send)
        self._list_tools = list_tools
        self._required: frozenset[str] | None = None

    def listed(self, tools: Sequence[Entry]) -> Sequence[Entry]:
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

    async def prepared(self, params: Payload, call: Call) -> Payload:
        if self._required is None:
            self.listed(await self._list_tools(_quiet(call)))
        members: dict[str, Any] = dict(params.members())
        name = Payload.encoded(members.get("name", b"null")).value
        if not self._required or name not in self._required:
            return params
        members["task"] = {"ttl": TTL_MS}
        return Payload.encoded(_encode(members))

    def _created(self, result: Payload) -> _Task | None:
        try:
            task = _decode_created(result.raw).task
        except (msgspec.DecodeError, RecursionError):
            return None
        return _read(task) if isinstance(task, msgspec.Raw) else None

    def _is_over(self, task: _Task) -> bool:
        return task.status != "working"

    def _questions(self, task: _Task) -> Mapping[str, Mapping[str, Any]]:
        return {}  # they come while the result is fetched

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


def _kind(raw: bytes) -> object:
    """The `resultType` of a result; None if it has none, or is no object."""
    try:
        return _decode(raw).kind
    except (msgspec.DecodeError, RecursionError):
        return None


def _pause(task: _Task, otherwise_s: float) -> float:
    return otherwise_s if task.poll_s is None else min(max(task.poll_s, SHORTEST_WISH_S), LONGEST_WISH_S)


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
