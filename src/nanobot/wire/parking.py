"""Questions to modern clients, who cannot be asked while they wait: the call is parked instead.

The call goes on in a task of its own. When the server behind it asks something, the client's request is
answered with `input_required`, and the call waits for the request to be sent again with the answers.
A client that leaves while it waits for us gives its call up; one that leaves with a question has
`LIFETIME_S` to come back.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Final

import anyio
import msgspec

from nanobot.errors import Busy
from nanobot.wire.call import Call
from nanobot.wire.exchange import Exchange
from nanobot.wire.home import Home
from nanobot.wire.outgoing import QUESTIONS
from nanobot.wire.request_state import LIFETIME_S, Binding, RequestStates
from nanobot.wire.rpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, Payload, RpcError
from nanobot.wire.service import Service

METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Requests that may need input; what they aim at is named by `name` or `uri`."""

MOST_PARKED: Final = 100
"""Parked calls of one account."""

_MARK: Final = b'"input_required"'
_encode = msgspec.json.Encoder().encode

StartSoon = Callable[[Callable[[], Coroutine[Any, Any, None]]], bool]


class Parking:
    """The requests of modern clients that may need input. `start_soon` owns the tasks of parked calls."""

    def __init__(self, service: Service, start_soon: StartSoon, home: Home) -> None:
        self._service = service
        self._start_soon = start_soon
        self._home = home
        self._states = RequestStates(home.key)
        self._parked: dict[tuple[str, str], _ParkedCall] = {}

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
        if not any(kind in exchange.caller.capabilities for kind in QUESTIONS.values()):
            result = await self._service.request(exchange.request.method, params, exchange.call())
            return self._relayed(result, binding)
        return await self._attend(self._begin(exchange, params), exchange, binding)

    def _begin(self, exchange: Exchange, params: Payload) -> _ParkedCall:
        call = _ParkedCall(exchange)
        company = replace(exchange.call(), notify=call.notify, ask=call.ask)
        method = exchange.request.method

        async def work() -> None:
            await call.run(self._service, method, params, company)

        if not self._start_soon(work):
            raise RpcError(INTERNAL_ERROR, "the server is stopping")
        return call

    async def _attend(self, call: _ParkedCall, exchange: Exchange, binding: Binding) -> Payload:
        """Wait with the client until the call is done or asks something."""
        key = (binding.account, call.id)
        call.exchange = exchange
        call.attended.set()
        call.scope.deadline = float("inf")
        asked = False
        try:
            result = await call.settled()
            asked = result is None
        finally:
            call.exchange = None
            if not asked:
                self._parked.pop(key, None)
                call.scope.cancel()
        if result is not None:
            return self._relayed(result, binding)
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

    def _find(self, account: str, place: str) -> _ParkedCall:
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


class _ParkedCall:
    """One call and its open questions. `exchange` is the client's request that waits for it now, if any."""

    def __init__(self, exchange: Exchange) -> None:
        self.id = secrets.token_urlsafe(16)
        self.exchange: Exchange | None = exchange
        self.scope = anyio.CancelScope()
        self.attended = anyio.Event()
        self.forgotten: Callable[[], object] = lambda: None
        self._capabilities = exchange.caller.capabilities
        self._questions: dict[str, _Question] = {}
        self._count = 0
        self._changed = anyio.Event()
        self._result: Payload | Exception | None = None

    async def run(self, service: Service, method: str, params: Payload, company: Call) -> None:
        outcome: Payload | Exception = RpcError(INTERNAL_ERROR, "the call was given up")
        try:
            with self.scope:
                outcome = await service.request(method, params, company)
        except Exception as failure:  # told to whoever asks next, as if it had been raised there
            outcome = failure
        finally:
            self._result = outcome
            self._changed.set()
        if self.exchange is None:  # the server did not wait for the answers; the client may still come
            with anyio.move_on_at(self.scope.deadline):
                await self.attended.wait()
            if not self.attended.is_set():
                self.forgotten()

    async def settled(self) -> Payload | None:
        """The result; None if there are questions to answer first. Raises what the call raised."""
        while True:
            if self._result is not None:
                if isinstance(self._result, Exception):
                    raise self._result
                return self._result
            if self._questions:
                return None
            self._changed = anyio.Event()
            await self._changed.wait()

    def questions(self) -> dict[str, dict[str, Any]]:
        return {key: {"method": q.method, "params": q.params.value} for key, q in self._questions.items()}

    def take(self, answers: Mapping[str, Any]) -> None:
        """Hand answers to their questions; those that are missing stay open."""
        for key, answer in answers.items():
            if (question := self._questions.pop(key, None)) is not None:
                question.settle(Payload.of(answer))

    def notify(self, method: str, params: Payload) -> None:
        if self.exchange is not None:
            self.exchange.notify(method, params)

    async def ask(self, method: str, params: Payload) -> Payload:
        if QUESTIONS.get(method) not in self._capabilities:
            raise RpcError(METHOD_NOT_FOUND, f"the client does not answer {method}")
        self._count += 1
        key, question = f"input-{self._count}", _Question(method, params)
        self._questions[key] = question
        self._changed.set()
        try:
            return await question.answer()
        finally:
            self._questions.pop(key, None)


class _Question:
    def __init__(self, method: str, params: Payload) -> None:
        self.method = method
        self.params = params
        self._answered = anyio.Event()
        self._value: Payload | None = None

    def settle(self, value: Payload) -> None:
        self._value = value
        self._answered.set()

    async def answer(self) -> Payload:
        await self._answered.wait()
        assert self._value is not None
        return self._value


def _binding(exchange: Exchange, members: Mapping[str, msgspec.Raw]) -> Binding:
    named = members.get("uri" if exchange.request.method == "resources/read" else "name", b"null")
    return Binding(exchange.caller.account, exchange.request.method, str(Payload.encoded(named).value))
