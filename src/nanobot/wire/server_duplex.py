"""Serving one client over a two-way line: stdin and stdout, or memory. Both eras on the same line.

A request with a modern envelope is served as modern, any other as legacy: there is nothing to switch, and
a client may probe with one era and go on in the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import anyio
from anyio.abc import TaskGroup

from nanobot.aio import task_group
from nanobot.config.model import ServerSettings
from nanobot.wire.attendance import Attendance, attending
from nanobot.wire.call import Audience, Caller
from nanobot.wire.changes import change_key
from nanobot.wire.depth import check_depth
from nanobot.wire.dispatch import Dispatcher, Outcome, encode_outcome
from nanobot.wire.duplex import Duplex, MessageTooLong
from nanobot.wire.envelope import open_envelope
from nanobot.wire.exchange import Exchange, Meta, cancelled_by, read_meta
from nanobot.wire.notifications import CHANGES, PREFIX
from nanobot.wire.outbox import Outbox, one_line
from nanobot.wire.peer import Peer
from nanobot.wire.questions import Questions, Unanswered
from nanobot.wire.rpc import (
    BUSY,
    INVALID_REQUEST,
    ErrorResponse,
    Id,
    Message,
    Notification,
    Payload,
    Request,
    Response,
    RpcError,
    decode,
    encode_error,
    encode_notification,
)
from nanobot.wire.service import Service
from nanobot.wire.side_tasks import SideTasks
from nanobot.wire.versions import META_VERSION

log = logging.getLogger(__name__)

DRAIN_S: Final = 1.5
"""How long requests under way may still take after the client has closed its end."""
LAST_ANSWERS_S: Final = 0.5
"""And how long it may take to give those up that did take longer."""

Brought = Callable[[], Mapping[str, str]]
"""What the message that was received last brought along (`Caller.values`)."""


async def serve_duplex(
    duplex: Duplex,
    service: Service,
    *,
    settings: ServerSettings,
    account: str = "",
    session: str | None = None,
    attendance: Attendance | None = None,
    brought: Brought = dict,
) -> None:
    """Answer the client at the other end until it closes the line. `account` and `session` say who that is.

    Until then it is there for `attendance`. Nothing that comes over the line ends this: what cannot be
    read is answered with an error.
    """
    connection = _Connection(duplex, service, settings, Peer(account=account, session=session), brought)
    unwatch = service.watch(connection.note_change)
    try:
        with attending(attendance, account, session):
            await connection.serve()
    finally:
        unwatch()


class _DuplexExchange(Exchange):
    """A request whose answer and news go over the line."""

    __slots__ = ("_outbox", "_questions")

    def __init__(
        self,
        request: Request,
        meta: Meta,
        caller: Caller,
        *,
        outbox: Outbox,
        questions: Questions,
        least_level: int,
    ) -> None:
        super().__init__(request, meta, caller, least_level=least_level)
        self._outbox = outbox
        self._questions = questions

    def send(self, message: bytes, key: str | None = None) -> None:
        if not self._outbox.put(one_line(message), key):
            log.debug("the client reads too slowly: a notification was dropped")

    async def ask(self, method: str, params: Payload) -> Payload:
        question = self._questions.ask(method, params)
        try:
            self._outbox.put(one_line(question.message), must=True)
            return await question.answer()
        except (asyncio.CancelledError, Unanswered):
            self._outbox.put(question.withdrawal, must=True)
            raise
        finally:
            self._questions.close(question)


class _Connection:
    """One line and everything under way on it."""

    def __init__(
        self, duplex: Duplex, service: Service, settings: ServerSettings, peer: Peer, brought: Brought
    ) -> None:
        self._duplex = duplex
        self._settings = settings
        self._side_tasks = SideTasks()
        self._dispatcher = Dispatcher(service, settings, self._side_tasks.start_soon)
        self._peer = peer
        self._brought = brought
        self._outbox = Outbox()
        self._questions = Questions()
        self._requests: dict[Id, Exchange] = {}
        self._idle = anyio.Event()

    async def serve(self) -> None:
        async with task_group() as group:
            await group.start(self._side_tasks.run)
            group.start_soon(self._write, group)
            try:
                await self._read(group)
            except anyio.get_cancelled_exc_class():
                self._side_tasks.end()  # they are shielded, and would keep us here
                raise
            finally:
                self._questions.give_up("the client closed the connection")
                self._dispatcher.listeners.close()
            await self._wait_for_requests(DRAIN_S)
            for exchange in self._requests.values():
                exchange.give_up()
            await self._wait_for_requests(LAST_ANSWERS_S)
            self._side_tasks.end()
            self._outbox.close()
            group.cancel_scope.deadline = anyio.current_time() + DRAIN_S  # for what is still to be written
        await self._dispatcher.forget(self._peer)

    async def _wait_for_requests(self, most_s: float) -> None:
        with anyio.move_on_after(most_s):
            while self._requests:
                self._idle = anyio.Event()
                await self._idle.wait()

    def note_change(self, method: str, params: Payload, audience: Audience) -> None:
        try:
            key = change_key(method, params)
        except RpcError as malformed:
            log.debug("malformed notification dropped", extra={"method": method, "reason": str(malformed)})
            return
        self._dispatcher.listeners.tell(method, params, audience)
        if audience.includes(self._peer.caller) and self._peer.wants(method, params):
            self._outbox.put(
                one_line(encode_notification(method, params)), key if method in CHANGES else None
            )

    async def _read(self, group: TaskGroup) -> None:
        while True:
            await self._outbox.has_room()  # a client that does not read is not read either
            try:
                line = await self._duplex.receive()
                message = decode(line)
                check_depth(line)
                await self._take(message, group)
            except MessageTooLong as error:
                self._refuse(None, RpcError(INVALID_REQUEST, str(error)))
            except RpcError as error:
                self._refuse(None, error)
            except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
                return

    async def _write(self, group: TaskGroup) -> None:
        try:
            while messages := await self._outbox.take():
                for message in messages:
                    await self._duplex.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._outbox.close(drop=True)
            group.cancel_scope.cancel()

    async def _take(self, message: Message, group: TaskGroup) -> None:
        match message:
            case Request() if not message.method.startswith(PREFIX):
                await self._request(message, group)
            case Request() | Notification():
                self._take_note(message)
            case Response() | ErrorResponse():
                self._questions.settle(message)

    def _take_note(self, note: Notification | Request) -> None:
        """Those that mean nothing to us may mean something to a server."""
        if (cancelled := cancelled_by(note)) is not None:
            id, reason = cancelled
            if (exchange := self._requests.get(id)) is not None:
                exchange.cancel(reason)
        else:
            self._dispatcher.pass_on(self._peer, note, self._brought())

    async def _request(self, request: Request, group: TaskGroup) -> None:
        try:
            exchange = self._exchange(request)
        except RpcError as error:
            self._refuse(request.id, error)
            return
        self._requests[request.id] = exchange
        if request.method == "initialize":
            await self._answer(exchange)  # what the client sends next may rely on it
        else:
            group.start_soon(self._answer, exchange)

    def _exchange(self, request: Request) -> Exchange:
        if request.id in self._requests:
            raise RpcError(INVALID_REQUEST, f"request {request.id!r} is still under way")
        if len(self._requests) >= self._settings.max_concurrent_requests:
            raise RpcError(BUSY, "too many requests under way")
        meta = read_meta(request.params)
        caller = self._peer.caller
        if META_VERSION in meta and request.method != "initialize":
            caller = open_envelope(request, meta, account=caller.account)
        if values := self._brought():
            caller = replace(caller, values=values)
        return _DuplexExchange(
            request,
            meta,
            caller,
            outbox=self._outbox,
            questions=self._questions,
            least_level=self._peer.least_level,
        )

    async def _answer(self, exchange: Exchange) -> None:
        outcome: Outcome | None = None
        try:
            with exchange.scope:
                if exchange.caller.era == "modern":
                    outcome = await self._dispatcher.modern(exchange)
                else:
                    outcome = await self._dispatcher.legacy(self._peer, exchange)
            outcome = outcome or exchange.given_up
            if outcome is not None:  # what the client has cancelled is not answered
                self._outbox.put(one_line(encode_outcome(exchange, outcome)), must=True)
        finally:
            del self._requests[exchange.request.id]
            self._idle.set()

    def _refuse(self, id: Id | None, error: RpcError) -> None:
        self._outbox.put(encode_error(id, error), must=True)
