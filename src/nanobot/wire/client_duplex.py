"""The client side of a two-way line: a request table over any `Duplex`, in both eras.

Requests carry ids of ours and are matched once; an answer to anything else is ignored. Whatever a server
sends that is no message is skipped, so one bad line never costs more than itself.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from nanobot.aio import task_group
from nanobot.wire.call import Call
from nanobot.wire.client import Connected, ConnectionLost, Heard, Hello, NoAnswer, envelope, shake_hands
from nanobot.wire.duplex import Duplex, MessageTooLong
from nanobot.wire.inbound import Inbound
from nanobot.wire.listening import keep_listening
from nanobot.wire.mending import answered_by
from nanobot.wire.notifications import cancelled
from nanobot.wire.outgoing import Outgoing, answerable, stamped
from nanobot.wire.rpc import (
    INTERNAL_ERROR,
    ErrorResponse,
    Id,
    Message,
    Notification,
    Payload,
    Request,
    Response,
    RpcError,
    decode,
    encode_notification,
    encode_request,
)

log = logging.getLogger(__name__)

TELL_S: Final = 10.0
"""How long a server that reads slowly may hold up a word of ours that nobody waits for."""

WHY_S: Final = 2.0
"""How long a failed write waits for the reader to learn the reason."""

Explain = Callable[[], Awaitable[str]]
"""Says, after the line has ended, why it did."""


async def _ended() -> str:
    return "the connection ended"


@asynccontextmanager
async def open_duplex(
    duplex: Duplex, hello: Hello, heard: Heard, *, explain: Explain = _ended
) -> AsyncGenerator[DuplexConnection]:
    """Shake hands over `duplex` and serve requests until the block ends; then the line is closed.

    Raises `NoCommonVersion`, `RpcError`, `ConnectionLost`, `Denied`.
    """
    async with task_group() as group:
        connection = DuplexConnection(duplex, hello, heard, explain, group)
        group.start_soon(connection.read)
        try:
            connection.connected = await shake_hands(connection, hello, probe=False)
            group.start_soon(keep_listening, connection, hello.discretion.hide)
            yield connection
        finally:
            connection.end("the connection was closed")
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await duplex.aclose()


class DuplexConnection:
    """Satisfies `wire.client.Connection` and `Handshaker`; made by `open_duplex`."""

    connected: Connected

    def __init__(
        self, duplex: Duplex, hello: Hello, heard: Heard, explain: Explain, group: TaskGroup
    ) -> None:
        self._duplex = duplex
        self._hello = hello
        self._explain = explain
        self._group = group
        self._ids = count(1)
        self._waiting: dict[Id, asyncio.Future[Payload | Exception]] = {}
        self._inbound = Inbound(heard, group, self._tell, hello)
        self._complained_at = -math.inf
        self._end_reason: str | None = None
        self._ended = anyio.Event()

    # Requests

    async def request(self, method: str, params: Payload, call: Call, *, timeout_s: float) -> Payload:
        outgoing = Outgoing(next(self._ids), call, timeout_s)
        token = outgoing.id if call.wants_progress else None
        params = stamped(params, call, token=token, envelope=self._envelope(call))
        self._inbound.under_way[outgoing.id] = outgoing
        try:
            return await self._exchange(outgoing, method, params)
        finally:
            del self._inbound.under_way[outgoing.id]

    async def notify(self, method: str, params: Payload) -> None:
        await self._send(encode_notification(method, params))

    @property
    def is_alive(self) -> bool:
        return self._end_reason is None

    async def lost(self) -> str:
        await self._ended.wait()
        return self._end_reason or ""

    async def ask(self, method: str, params: Payload, *, version: str | None) -> Payload:
        del version  # a line carries no headers
        return await self._exchange(Outgoing(next(self._ids), Call(), None), method, params)

    async def renewed(self) -> None:
        await anyio.sleep_forever()  # one line, one session

    async def listen(self, params: Payload, acknowledged: Callable[[Payload], None] | None = None) -> None:
        """Keep a subscription open until the server ends it. Raises `RpcError`, `ConnectionLost`."""
        outgoing = Outgoing(next(self._ids), Call(), None)
        params = stamped(params, outgoing.call, token=None, envelope=self._envelope(outgoing.call))
        if acknowledged is not None:
            self._inbound.acknowledged[outgoing.id] = acknowledged
        try:
            await self._exchange(outgoing, "subscriptions/listen", params)
        finally:
            self._inbound.acknowledged.pop(outgoing.id, None)

    async def tell(self, method: str, params: Payload | None = None, *, version: str) -> None:
        del version
        await self._send(encode_notification(method, params))

    async def _exchange(self, outgoing: Outgoing, method: str, params: Payload) -> Payload:
        # An outcome, never an exception, is put into the future: nobody might be left to retrieve it.
        answered = self._waiting[outgoing.id] = asyncio.get_running_loop().create_future()
        try:
            async with outgoing.clock:
                await self._send(encode_request(outgoing.id, method, params))
                outcome = await answered
                if isinstance(outcome, Exception):
                    raise outcome
                return outcome
        except TimeoutError:
            raise NoAnswer(outgoing.timeout_s or 0) from None
        finally:
            # Still in the table: nobody waits any more, be it for cancellation or for the time.
            if self._waiting.pop(outgoing.id, None) is not None and method != "initialize":
                self._tell_soon(cancelled(outgoing.id))

    async def _send(self, message: bytes) -> None:
        if self._end_reason is not None:
            raise ConnectionLost(self._end_reason, maybe_sent=False)
        try:
            await self._duplex.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # As a rule the reader meets the end too, and knows the reason better.
            with anyio.move_on_after(WHY_S):
                await self._ended.wait()
            self.end("it no longer reads what it is sent")
            raise ConnectionLost(self._end_reason or "", maybe_sent=False) from None

    def _envelope(self, call: Call) -> Mapping[str, Any]:
        if self.connected.era == "legacy":
            return {}
        return envelope(
            self._hello,
            self.connected.version,
            answerable(call, self._hello.capabilities),
            log_level=call.log_level,
        )

    # What the server says

    async def read(self) -> None:
        """Take in messages until the line ends. Run by `open_duplex`."""
        while True:
            line = b""
            try:
                line = await self._duplex.receive()
                message = decode(line, mend=True)
            except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
                break
            except MessageTooLong as e:
                self._skip(e.ends, str(e))
            except RpcError as e:
                self._skip(line, e.message)
            else:
                self._take(message)
        self.end(await self._explain())

    def end(self, reason: str) -> None:
        """Fail what waits, and everything that comes later, for `reason`. The first reason stands."""
        if self._end_reason is not None:
            return
        self._end_reason = reason
        self._ended.set()
        waiting, self._waiting = self._waiting, {}
        for answered in waiting.values():
            _settle(answered, ConnectionLost(reason, maybe_sent=True))

    def _skip(self, line: bytes, reason: str) -> None:
        """Log a line that is no message; of many in a row, one a second. If it was an answer, that was it."""
        if (answered := self._waiting.pop(answered_by(line) or 0, None)) is not None:
            _settle(answered, RpcError(INTERNAL_ERROR, f"the server's answer is no message: {reason}"))
        now = anyio.current_time()
        if now - self._complained_at >= 1:
            self._complained_at = now
            log.warning("line skipped", extra={"reason": self._hello.discretion.hide(reason)})

    def _take(self, message: Message) -> None:
        match message:
            case Response(id=id, result=result):
                if (answered := self._waiting.pop(id, None)) is not None:
                    _settle(answered, result)
            case ErrorResponse(id=id, error=error):
                if id is not None and (answered := self._waiting.pop(id, None)) is not None:
                    _settle(answered, error)
            case Notification():
                self._inbound.hear(message)
            case Request():
                self._inbound.ask(message)

    # Words that nobody waits for

    def _tell_soon(self, message: bytes) -> None:
        if self._end_reason is None:
            self._group.start_soon(self._tell, message)

    async def _tell(self, message: bytes) -> None:
        with anyio.move_on_after(TELL_S):
            try:
                await self._send(message)
            except ConnectionLost:
                log.debug("the connection ended before the server could be told")


def _settle(answered: asyncio.Future[Payload | Exception], outcome: Payload | Exception) -> None:
    if not answered.done():  # else its caller was cancelled in the same moment
        answered.set_result(outcome)
