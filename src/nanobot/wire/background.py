"""A call that goes on in a task of its own, whether or not its client waits for it.

What the server asks meanwhile is kept until the client brings the answers.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Literal

import anyio

from nanobot.wire.call import Call, Deferral
from nanobot.wire.exchange import Exchange
from nanobot.wire.notifications import PROGRESS
from nanobot.wire.outgoing import QUESTIONS
from nanobot.wire.rpc import INTERNAL_ERROR, METHOD_NOT_FOUND, Payload, RpcError
from nanobot.wire.service import Service

LONGEST_MESSAGE: Final = 1000
"""Characters of a progress message that are kept for a client that is not there."""

NotYet = Literal["asked", "deferred"]
"""Why a client is to be answered before there is a result: there are questions to it, or it takes long."""


class BackgroundCall:
    """One call and its open questions. `exchange` is the client's request that waits for it now, if any."""

    def __init__(self, exchange: Exchange, *, may_defer: bool = False) -> None:
        self.id = secrets.token_urlsafe(16)
        self.exchange: Exchange | None = exchange
        self.scope = anyio.CancelScope()
        self.attended = anyio.Event()
        self.forgotten: Callable[[], object] = lambda: None
        self.deferral = Deferral(self._tell) if may_defer else None
        self.message = ""
        """What the server said last of how far it is, while no client waited."""
        self.result: Payload | Exception | None = None
        """None while the call is under way."""
        self.version = 0
        """Rises when a question comes or goes, when the result is there, and when something is said of it."""
        self._capabilities = exchange.caller.capabilities
        self._questions: dict[str, _Question] = {}
        self._count = 0
        self._changed = anyio.Event()

    def company(self, call: Call) -> Call:
        """`call` as it goes along with this one."""
        return replace(call, notify=self.notify, ask=self.ask, deferral=self.deferral)

    async def run(self, service: Service, method: str, params: Payload, company: Call) -> None:
        outcome: Payload | Exception = RpcError(INTERNAL_ERROR, "the call was given up")
        try:
            with self.scope:
                outcome = await service.request(method, params, company)
        except Exception as failure:  # told to whoever asks next, as if it had been raised there
            outcome = failure
        finally:
            self.result = outcome
            self._tell()
        if self.exchange is None:  # the server did not wait for the answers; the client may still come
            with anyio.move_on_at(self.scope.deadline):
                await self.attended.wait()
            if not self.attended.is_set():
                self.forgotten()

    async def settled(self) -> Payload | NotYet:
        """The result, or why the client is to be answered without one. Raises what the call raised."""
        deferral = self.deferral
        while True:
            if isinstance(self.result, Exception):
                raise self.result
            if self.result is not None:
                return self.result
            if deferral is not None and deferral.due <= anyio.current_time():
                return "deferred"
            if self._questions:
                return "asked"
            with anyio.move_on_at(math.inf if deferral is None else deferral.due):
                await self.changed(self.version)

    async def changed(self, seen: int) -> None:
        """Return once `version` is not `seen` any more."""
        while self.version == seen:
            await self._changed.wait()

    def questions(self) -> dict[str, dict[str, Any]]:
        """The open ones by key: `{method, params}`."""
        return {key: {"method": q.method, "params": q.params.value} for key, q in self._questions.items()}

    def take(self, answers: Mapping[str, Any]) -> None:
        """Hand answers to their questions; those that are missing stay open."""
        for key, answer in answers.items():
            if (question := self._questions.pop(key, None)) is not None:
                question.settle(Payload.of(answer))
        self._tell()

    def notify(self, method: str, params: Payload) -> None:
        if self.exchange is not None:
            self.exchange.notify(method, params)
        elif method == PROGRESS:
            with suppress(RpcError):
                message = params.object().get("message")
                if isinstance(message, str) and message:
                    self.message = message[:LONGEST_MESSAGE]
                    self._tell()

    async def ask(self, method: str, params: Payload) -> Payload:
        if QUESTIONS.get(method) not in self._capabilities:
            raise RpcError(METHOD_NOT_FOUND, f"the client does not answer {method}")
        self._count += 1
        key, question = f"input-{self._count}", _Question(method, params)
        self._questions[key] = question
        self._tell()
        try:
            return await question.answer()
        finally:
            self._questions.pop(key, None)
            self._tell()

    def _tell(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = anyio.Event()


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
