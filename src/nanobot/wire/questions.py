"""Requests that a server sends to its client: each waits for one answer, and is answered once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import anyio

from nanobot.wire.event_stream import EventStream
from nanobot.wire.notifications import cancelled
from nanobot.wire.rpc import (
    INTERNAL_ERROR,
    TIMEOUT,
    ErrorResponse,
    Id,
    Payload,
    Response,
    RpcError,
    encode_request,
)

ANSWER_S: Final[Mapping[str, float]] = {"roots/list": 10.0, "sampling/createMessage": 600.0}
"""How long a client may take for what no person has to answer."""


class Unanswered(RpcError):
    """The client left a question open for too long. It was not answered, and no longer needs to be."""

    code = "rpc.unanswered"

    def __init__(self, method: str, seconds: float) -> None:
        super().__init__(TIMEOUT, f"the client did not answer {method} within {seconds:g} s")


class Question:
    """One request to the client. `message` is what to send; `withdrawal` takes it back."""

    __slots__ = ("_answered", "_method", "_outcome", "id", "message", "sent_on")

    def __init__(self, id: Id, method: str, params: Payload) -> None:
        self.id = id
        self._method = method
        self.message = encode_request(id, method, params)
        self.sent_on: EventStream | None = None
        self._answered = anyio.Event()
        self._outcome: Payload | RpcError | None = None

    @property
    def withdrawal(self) -> bytes:
        return cancelled(self.id)

    def settle(self, outcome: Payload | RpcError) -> None:
        self._outcome = outcome
        self._answered.set()

    async def answer(self) -> Payload:
        """The result. Raises `RpcError` for an error the client answered, or when it has left, and
        `Unanswered` when it takes too long."""
        limit = ANSWER_S.get(self._method)
        with anyio.move_on_after(limit):
            await self._answered.wait()
        if limit is not None and not self._answered.is_set():
            raise Unanswered(self._method, limit)
        if isinstance(self._outcome, Payload):
            return self._outcome
        raise self._outcome or RpcError(INTERNAL_ERROR, "no answer")


class Questions:
    """The open questions of one connection or session."""

    __slots__ = ("_last", "_life", "_open")

    def __init__(self, life: str = "") -> None:
        """`life` tells a session that was restored from what it was before: an answer to a question from
        then must not be taken for the answer to one from now."""
        self._life = life
        self._open: dict[Id, Question] = {}
        self._last = 0

    def ask(self, method: str, params: Payload) -> Question:
        """A new question under an id of its own. Whoever asks it closes it again."""
        self._last += 1
        id = f"{self._life}-{self._last}" if self._life else self._last
        question = Question(id, method, params)
        self._open[question.id] = question
        return question

    def close(self, question: Question) -> None:
        self._open.pop(question.id, None)

    def settle(self, answer: Response | ErrorResponse) -> None:
        """Hand an answer to its question. One that nobody waits for is dropped."""
        question = self._open.pop(answer.id, None) if answer.id is not None else None
        if question is not None:
            question.settle(answer.result if isinstance(answer, Response) else answer.error)

    def pending(self) -> tuple[Question, ...]:
        return tuple(self._open.values())

    def give_up(self, reason: str) -> None:
        """The client has left for good: every open question fails."""
        for question in self._open.values():
            question.settle(RpcError(INTERNAL_ERROR, reason))
        self._open.clear()
