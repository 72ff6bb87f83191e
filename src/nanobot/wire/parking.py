"""Questions to modern clients, who cannot be asked while they wait: the call is parked instead.

The call goes on in a task of its own. When the server behind it asks something, the client's request is
answered with `input_required`, and the call waits for the request to be sent again with the answers.
A client that leaves while it waits for us gives its call up; one that leaves with a question has
`LIFETIME_S` to come back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio
import msgspec

from nanobot.errors import Busy
from nanobot.wire.background import BackgroundCall, NotYet
from nanobot.wire.exchange import Exchange
from nanobot.wire.extensions import TASKS, declares
from nanobot.wire.home import Home
from nanobot.wire.outgoing import QUESTIONS
from nanobot.wire.request_state import LIFETIME_S, Binding, RequestStates
from nanobot.wire.rpc import INTERNAL_ERROR, INVALID_PARAMS, Payload, RpcError
from nanobot.wire.service import Service
from nanobot.wire.side_tasks import StartSoon
from nanobot.wire.tasks import Tasks

METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Requests that may need input; what they aim at is named by `name` or `uri`."""

MOST_PARKED: Final = 100
"""Parked calls of one account."""

_MARK: Final = b'"input_required"'
_encode = msgspec.json.Encoder().encode


class Parking:
    """The requests of modern clients that may need input. `start_soon` owns the tasks of parked calls."""

    def __init__(self, service: Service, start_soon: StartSoon, home: Home, tasks: Tasks) -> None:
        self._service = service
        self._tasks = tasks
        self._start_soon = start_soon
        self._home = home
        self._states = RequestStates(home.key)
        self._parked: dict[tuple[str, str], BackgroundCall] = {}

    async def request(self, exchange: Exchange) -> Payload:
        """The result of a request in `METHODS`: the server's, or `input_required`. Raises as `Service` does,
        and `RpcError` (-32602) for a `requestState` that is not ours to take."""
        params = exchange.request.params
        members: dict[str, Any] = dict(params.members())
        binding = _binding(exchange, members)
        state = members.get("requestState")
        if state is not None:
            kind, text = self._states.open(Payload.encoded(state).value, binding)
            if kind == "parked":
                call = self._find(binding.account, text or "")
                call.take(Payload.encoded(members.get("inputResponses", b"null")).object())
                return await self._attend(call, exchange, binding)
            if text is None:
                del members["requestState"]
            else:
                members["requestState"] = text
            params = Payload.encoded(_encode(members))
        method, capabilities = exchange.request.method, exchange.caller.capabilities
        may_defer = method == "tools/call" and declares(capabilities, TASKS)
        if not may_defer and not any(kind in capabilities for kind in QUESTIONS.values()):
            result = await self._service.request(method, params, exchange.call())
            return self._relayed(result, binding)
        call = self._begin(exchange, params, may_defer=may_defer)
        return await self._attend(call, exchange, binding)

    def _begin(self, exchange: Exchange, params: Payload, *, may_defer: bool) -> BackgroundCall:
        call = BackgroundCall(exchange, may_defer=may_defer)
        company = call.company(exchange.call())
        method = exchange.request.method

        async def work() -> None:
            await call.run(self._service, method, params, company)

        if not self._start_soon(work):
            raise RpcError(INTERNAL_ERROR, "the server is stopping")
        return call

    async def _attend(self, call: BackgroundCall, exchange: Exchange, binding: Binding) -> Payload:
        """Wait with the client until the call is done, asks something, or becomes a task."""
        key = (binding.account, call.id)
        call.exchange = exchange
        call.attended.set()
        call.scope.deadline = float("inf")
        outcome: Payload | NotYet | None = None
        task: Payload | None = None
        try:
            outcome = await call.settled()
            if outcome == "deferred":
                task = await self._tasks.adopt(call, binding.account)
                if task is None:
                    call.deferral = None
                    outcome = await call.settled()
        finally:
            call.exchange = None
            if outcome != "asked":
                self._parked.pop(key, None)
                if task is None:
                    call.scope.cancel()
        if task is not None:
            return task
        if isinstance(outcome, Payload):
            return self._relayed(outcome, binding)
        if (
            key not in self._parked
            and sum(1 for account, _ in self._parked if account == key[0]) >= MOST_PARKED
        ):
            call.scope.cancel()
            raise Busy(f"At most {MOST_PARKED} calls can wait for answers at once.")
        self._parked[key] = call
        call.scope.deadline = anyio.current_time() + LIFETIME_S
        call.attended = anyio.Event()
        call.forgotten = lambda: self._parked.pop(key, None)
        state = self._states.seal("parked", f"{self._home.process} {call.id}", binding)
        body = {"resultType": "input_required", "inputRequests": call.questions(), "requestState": state}
        return Payload.of(body)

    def _find(self, account: str, place: str) -> BackgroundCall:
        """The call that a state leads to. One in another process can only be answered there; when that has
        ended, so has the call."""
        process, _, id = place.partition(" ")
        if process != self._home.process and self._home.is_alive(process):
            elsewhere = "the call that these answers belong to waits in another process; send them there"
            raise RpcError(INTERNAL_ERROR, elsewhere, Payload.of({"retryable": True}))
        call = self._parked.get((account, id))
        if call is None or call.exchange is not None:
            raise RpcError(INVALID_PARAMS, "the call that these answers belong to does not wait for them")
        return call

    def _relayed(self, result: Payload, binding: Binding) -> Payload:
        """`result` with the state of a modern server behind us put into one of ours."""
        if _MARK not in result.raw:
            return result
        members: dict[str, Any] = dict(result.members())
        if bytes(members.get("resultType", b"")) != _MARK:
            return result
        state = members.get("requestState")
        text = None if state is None else str(Payload.encoded(state).value)
        members["requestState"] = self._states.seal("relayed", text, binding)
        return Payload.encoded(_encode(members))


def _binding(exchange: Exchange, members: Mapping[str, msgspec.Raw]) -> Binding:
    named = members.get("uri" if exchange.request.method == "resources/read" else "name", b"null")
    return Binding(exchange.caller.account, exchange.request.method, str(Payload.encoded(named).value))
