"""A request that came by POST: answered as JSON if it is quick, as an event stream if it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import anyio

from nanobot.wire.call import Caller
from nanobot.wire.dispatch import Outcome, encode_outcome
from nanobot.wire.event_stream import Clock, EventStream
from nanobot.wire.exchange import Exchange, Meta
from nanobot.wire.http_request import Header, HttpRequest, send_json
from nanobot.wire.outbox import Outbox
from nanobot.wire.questions import Unanswered
from nanobot.wire.rpc import CANCELLED, INTERNAL_ERROR, Payload, Request, RpcError
from nanobot.wire.session import Session
from nanobot.wire.side_tasks import Patience, SideTasks
from nanobot.wire.sse_response import send_events

READER_S: Final = 10.0
"""How long a question waits for somebody to read it."""


class HttpExchange(Exchange):
    """The handler runs in the task of the POST itself.

    A second task is started only for an answer that becomes a stream (it writes and notices when the client
    leaves), or, in the modern era, to notice that the client of a slow JSON answer leaves: leaving
    is how a modern client cancels. A legacy client's request goes on and its stream can be resumed.
    """

    __slots__ = ("_answered", "_clock", "_events", "_http", "_session", "_side", "_side_done",
                 "_side_tasks", "_stream")  # fmt: skip

    def __init__(
        self,
        http: HttpRequest,
        request: Request,
        meta: Meta,
        caller: Caller,
        session: Session | None,
        *,
        side_tasks: SideTasks,
        clock: Clock,
    ) -> None:
        """`session` is None for a modern request."""
        super().__init__(request, meta, caller, least_level=session.peer.least_level if session else 0)
        self._http = http
        self._session = session
        if session is None:
            self.headers = http.headers
        self._events = http.reads.events
        self._side_tasks = side_tasks
        self._clock = clock
        self._stream: EventStream | None = None
        self._side: anyio.CancelScope | None = None
        self._side_done: anyio.Event | None = None
        self._answered = False

    async def settle(self, work: Awaitable[Outcome], patience: Patience) -> Outcome:
        """The outcome of `work`, which is told to end when the request is cancelled."""
        outcome: Outcome | None = None
        lost = self._be_slow
        patience.watch(lost)
        try:
            with self.scope:
                outcome = await work
        except asyncio.CancelledError:  # the server itself gives the request up
            if self._side is not None:
                self._side.cancel()
            raise
        finally:
            patience.forget(lost)
        if outcome is None:
            outcome = self.given_up or RpcError(CANCELLED, f"Request cancelled: {self.reason}")
        return outcome

    def give_up(self) -> None:
        if self._stream is not None:
            self._stream.say_farewell()
        super().give_up()

    async def answer(self, outcome: Outcome, status: int, headers: tuple[Header, ...]) -> None:
        """Send the outcome; `status` and `headers` are for an answer that is not a stream."""
        if not self._http.reads.json:
            self.open_stream()
        self._answered = True
        body = encode_outcome(self, outcome)
        if self._stream is not None:
            self._stream.send(body, last=True)
            if self._session is not None:
                self._session.close_stream(self._stream)
        elif self._side is not None:
            self._side.cancel()
        if self._side_done is not None:
            await self._side_done.wait()
        if self._stream is None:
            await send_json(self._http.send, status, body, headers)

    def open_stream(self) -> EventStream | None:
        """The stream of this request, opened at its first use; None if it has to be JSON."""
        if self._stream is not None or not self._events or self._answered:
            return self._stream
        session = self._session
        stream = EventStream(1, None, self._clock) if session is None else session.open_stream()
        outbox = stream.attach(prime=session is not None and session.primes)
        if self._start_side(lambda: self._write(stream, outbox)):
            self._stream = stream
        elif session is not None:
            session.close_stream(stream)
        return self._stream

    def send(self, message: bytes, key: str | None = None) -> None:
        stream = self._way()
        if stream is not None:
            stream.send(message, key)

    async def ask(self, method: str, params: Payload) -> Payload:
        session = self._session
        assert session is not None  # `Exchange.call` offers this to legacy requests only
        stream = self._way() or session.open_standalone()
        question = session.questions.ask(method, params)
        try:
            with anyio.move_on_after(READER_S):
                await stream.attached()
            if stream.reader is None:
                raise RpcError(INTERNAL_ERROR, f"no reader: the client has no stream open for {method}")
            question.sent_on = stream
            stream.send(question.message)
            try:
                return await question.answer()
            except (asyncio.CancelledError, Unanswered):
                stream.send(question.withdrawal)
                raise
        finally:
            session.questions.close(question)

    def _way(self) -> EventStream | None:
        """Where messages of this request go: its own stream, else the one that the client opened, if any."""
        return self.open_stream() or (self._session.standalone if self._session is not None else None)

    def _be_slow(self) -> None:
        if self.open_stream() is None and self._session is None:
            self._start_side(self._leave_with_client)

    def _start_side(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Start the second task; False if that is impossible because the endpoint has stopped."""
        side, done = anyio.CancelScope(), anyio.Event()

        async def run() -> None:
            try:
                with side:
                    await work()
            finally:
                done.set()

        started = self._side_tasks.start_soon(run)
        if started:
            self._side, self._side_done = side, done
        return started

    async def _write(self, stream: EventStream, outbox: Outbox) -> None:
        session = self._session
        headers = (session.header,) if session is not None else ()
        try:
            await send_events(outbox, self._http.receive, self._http.send, headers)
        finally:
            if stream.reader is outbox:
                stream.detach(outbox)
        if session is None and not self._answered:
            self.cancel("the client closed the stream")

    async def _leave_with_client(self) -> None:
        while (await self._http.receive())["type"] != "http.disconnect":
            pass
        self.cancel("the client closed the connection")
