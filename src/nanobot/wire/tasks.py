"""Calls whose clients come back for the result: the extension `io.modelcontextprotocol/tasks`, served.

A call that takes long becomes a task when whoever answers it says so (`Call.deferral`) and its client can
come back. From then on it belongs to nobody's connection. What a task came to is kept for `KEPT_S` after its
last change, also beyond the process; a task whose process ended before its result was there has failed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import anyio
import msgspec

from nanobot.errors import StoreError
from nanobot.ids import new_id
from nanobot.wire.background import BackgroundCall
from nanobot.wire.exchange import Exchange
from nanobot.wire.explain import explain, unknown
from nanobot.wire.extensions import TASKS, declares
from nanobot.wire.home import Home
from nanobot.wire.rpc import (
    EMPTY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_CAPABILITY,
    Payload,
    RpcError,
)
from nanobot.wire.side_tasks import StartSoon

log = logging.getLogger(__name__)

PREFIX: Final = "tasks/"
"""How the methods begin that are answered here."""
KEPT_S: Final = 3600.0
POLL_MS: Final = 1000
"""How often a client may ask."""
MOST_RUNNING: Final = 100
"""Tasks of one account at once. Whoever makes one more waits for its result."""
RETRY_S: Final = 5.0
"""Pause before what a task came to is saved again, after that failed."""

_REQUIRED: Final = Payload.of({"requiredCapabilities": {"extensions": {TASKS: {}}}})

RUNNING: Final = ("working", "input_required")
Status = Literal["working", "input_required", "completed", "failed", "cancelled"]


class _State(msgspec.Struct, omit_defaults=True):
    """A task as it is kept. Times are seconds since the epoch; `outcome` is the result or the error."""

    status: Status
    created: float
    updated: float
    message: str = ""
    questions: Mapping[str, Any] = {}
    outcome: msgspec.Raw = msgspec.Raw(b"")


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_State).decode


class _Task:
    def __init__(self, call: BackgroundCall, now: float) -> None:
        self.call = call
        self.state = _State("working", created=now, updated=now)
        self.is_cancelled = False

    def attend(self) -> None:
        """Somebody still wants to know. Without that, the call ends when nobody could ask for it any more."""
        self.call.scope.deadline = anyio.current_time() + KEPT_S

    def look(self, now: float) -> bool:
        """Take in what became of the call; whether anything did that is worth keeping."""
        call, before = self.call, self.state
        before.message = call.message
        after = msgspec.structs.replace(before, questions=call.questions())
        match call.result:
            case None:
                after.status = "input_required" if after.questions else "working"
            case _ if self.is_cancelled:
                after.status = "cancelled"
            case Payload() as result:
                after.status, after.outcome = "completed", msgspec.Raw(result.raw)
            case Exception() as failure:
                error = explain(failure)
                after.status, after.outcome = "failed", msgspec.Raw(_encode(error.body()))
        if after == before:
            return False
        after.updated = now
        self.state = after
        return True


class Tasks:
    """The tasks of all modern clients. `home` keeps them; `start_soon` owns who looks after each."""

    def __init__(self, home: Home, start_soon: StartSoon, now: Callable[[], float] = time.time) -> None:
        self._home = home
        self._start_soon = start_soon
        self._now = now
        self._running: dict[tuple[str, str], _Task] = {}
        self._methods: dict[str, Callable[[str, Exchange], Awaitable[Payload]]] = {
            "tasks/get": self._get,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel,
        }

    async def adopt(self, call: BackgroundCall, account: str) -> Payload | None:
        """Make a running call a task; what its client is told. None if it can be none, and has to wait on."""
        if sum(1 for owner, _ in self._running if owner == account) >= MOST_RUNNING:
            return None
        id, task = new_id("task", 24), _Task(call, self._now())
        self._running[account, id] = task  # counts from here on

        async def look_after() -> None:
            await self._look_after(id, account, task)

        is_task = False
        try:
            await self._save(id, account, task.state)
            is_task = self._start_soon(look_after)
        except StoreError as failure:
            log.warning("a call does not become a task", extra={"reason": str(failure)})
        finally:
            if not is_task:
                del self._running[account, id]
        if not is_task:
            return None
        task.attend()
        if call.deferral is not None:
            call.deferral.is_taken = True
        return Payload.of({"resultType": "task", **_about(id, task.state, self._now())})

    async def request(self, exchange: Exchange) -> Payload:
        """The answer to a method that begins with `PREFIX`. Raises `RpcError`: -32601 for one that there is
        not, -32021 for a client that did not declare the extension, -32602 for a task that is not its own."""
        handler = self._methods.get(exchange.request.method)
        if handler is None:
            raise unknown(exchange.request.method)
        if not declares(exchange.caller.capabilities, TASKS):
            raise RpcError(
                MISSING_CAPABILITY, f"{exchange.request.method} is for clients with {TASKS}", _REQUIRED
            )
        id = exchange.request.params.object().get("taskId")
        if not isinstance(id, str):
            raise RpcError(INVALID_PARAMS, f"{exchange.request.method} needs a taskId (a string)")
        return await handler(id, exchange)

    async def _get(self, id: str, exchange: Exchange) -> Payload:
        account = exchange.caller.account
        task = self._running.get((account, id))
        if task is None:
            state = await self._kept(id, account)
        else:
            task.attend()
            task.look(self._now())
            state = task.state
        told = _about(id, state, self._now())
        match state.status:
            case "completed":
                told["result"] = state.outcome
            case "failed":
                told["error"] = state.outcome
            case "input_required":
                told["inputRequests"] = state.questions
            case _:
                pass
        return Payload.encoded(_encode(told))

    async def _update(self, id: str, exchange: Exchange) -> Payload:
        answers = exchange.request.params.object().get("inputResponses")
        if not isinstance(answers, dict):
            raise RpcError(INVALID_PARAMS, "tasks/update needs inputResponses (an object)")
        task = await self._find(id, exchange.caller.account)
        if task is not None:
            task.attend()
            task.call.take(answers)  # pyright: ignore[reportUnknownArgumentType]
        return EMPTY

    async def _cancel(self, id: str, exchange: Exchange) -> Payload:
        task = await self._find(id, exchange.caller.account)
        if task is not None and task.call.result is None:
            task.is_cancelled = True
            task.call.scope.cancel()
        return EMPTY

    async def _find(self, id: str, account: str) -> _Task | None:
        """A task that runs here; None for one that is over. Raises `RpcError` for any other."""
        task = self._running.get((account, id))
        if task is None and (await self._kept(id, account)).status in RUNNING:
            elsewhere = f"task {id!r} runs in another process of this server; try again"
            raise RpcError(INTERNAL_ERROR, elsewhere, Payload.of({"retryable": True}))
        return task

    async def _kept(self, id: str, account: str) -> _State:
        """A task that does not run here, as it was left. Raises `RpcError` (-32602), `StoreError`."""
        found = await self._home.tasks.find(id, account)
        if found is None:
            raise RpcError(INVALID_PARAMS, f"unknown task {id!r}; tasks are kept for an hour after they end")
        process, kept = found
        state = _decode(kept)
        is_over = state.status not in RUNNING
        if is_over or (process != self._home.process and self._home.is_alive(process)):
            return state
        lost = RpcError(INTERNAL_ERROR, "the task was interrupted", Payload.of({"reason": "restart"}))
        state.status, state.questions = "failed", {}
        state.outcome = msgspec.Raw(_encode(lost.body()))
        return state

    async def _look_after(self, id: str, account: str, task: _Task) -> None:
        """Keep on record what becomes of a task, until it is over."""
        is_saved = True
        try:
            while True:
                seen = task.call.version
                is_saved = not task.look(self._now()) and is_saved
                if not is_saved:
                    is_saved = await self._saved(id, account, task.state)
                if not is_saved:
                    await anyio.sleep(RETRY_S)
                elif task.call.result is not None and task.call.version == seen:
                    return
                else:
                    with anyio.move_on_after(KEPT_S / 2) as scope:
                        await task.call.changed(seen)
                    is_saved = not scope.cancelled_caught  # or it would be forgotten while it runs
        finally:
            del self._running[account, id]

    async def _saved(self, id: str, account: str, state: _State) -> bool:
        try:
            await self._save(id, account, state)
        except StoreError as failure:
            log.warning("a task is not on record", extra={"task": id, "reason": str(failure)})
            return False
        return True

    async def _save(self, id: str, account: str, state: _State) -> None:
        until = self._now() + KEPT_S
        await self._home.tasks.save(id, account, self._home.process, _encode(state), until)


def _about(id: str, state: _State, now: float) -> dict[str, Any]:
    """What every answer says of a task. One that runs is kept from `now`, one that is over from its end."""
    last = now if state.status in RUNNING else state.updated
    about: dict[str, Any] = {"taskId": id, "status": state.status}
    if state.message:
        about["statusMessage"] = state.message
    return about | {
        "createdAt": _iso(state.created),
        "lastUpdatedAt": _iso(state.updated),
        "ttlMs": round((last - state.created + KEPT_S) * 1000),
        "pollIntervalMs": POLL_MS,
    }


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
