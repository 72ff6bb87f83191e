"""Serving clients of HTTP+SSE, the transport of 2024-11-05: one stream for answers, one address for messages.

A GET opens the stream and with it a session, whose address its first event names; POSTs to that address carry
the client's messages. Behind both is a two-way line, which is served as any other. The session ends with its
stream: this transport knows no resuming.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs

import anyio

from nanobot.aio import task_group
from nanobot.config.model import ServerSettings, SessionSettings
from nanobot.ids import new_uuid
from nanobot.sse import FAREWELL, format_event
from nanobot.wire.attendance import Attendance
from nanobot.wire.http_request import (
    Disconnected,
    Header,
    HttpRequest,
    Receive,
    Refusal,
    Scope,
    Send,
    check_content_type,
    read_body,
    read_message,
    send_empty,
)
from nanobot.wire.outbox import Outbox
from nanobot.wire.rpc import BUSY, INTERNAL_ERROR, INVALID_REQUEST, RpcError
from nanobot.wire.server_duplex import serve_duplex
from nanobot.wire.service import Service
from nanobot.wire.sse_response import send_events

STREAM_PATH: Final = "/sse"
MESSAGES_PATH: Final = "/messages"
PATHS: Final = frozenset({STREAM_PATH, MESSAGES_PATH})

BACKLOG: Final = 16
"""How many messages of one client may wait until they are looked at."""
BACKLOG_S: Final = 10.0

_RETRY: Final[Header] = (b"retry-after", b"5")


class SseEndpoint:
    """A plain ASGI application for `PATHS`.

    `scope["state"]` names who asks and what they brought along, as for `McpEndpoint`; a session of another
    account does not exist.
    """

    def __init__(
        self,
        service: Service,
        *,
        settings: ServerSettings,
        session_settings: SessionSettings,
        attendance: Attendance | None = None,
    ) -> None:
        """`attendance` is told of the sessions."""
        self._service = service
        self._attendance = attendance
        self._settings = settings
        self._most = session_settings.max_live
        self._lines: dict[str, _Line] = {}
        self._is_open = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        http = HttpRequest(scope, receive, send)
        allowed = "GET" if scope["path"] == STREAM_PATH else "POST"
        try:
            if not self._is_open:
                raise Refusal(503, RpcError(INTERNAL_ERROR, "the server is stopping"), headers=(_RETRY,))
            if scope["method"] != allowed:
                refused = RpcError(INVALID_REQUEST, f"{scope['method']} is not possible here")
                raise Refusal(405, refused, headers=((b"allow", allowed.encode()),))
            await (self._stream(http) if allowed == "GET" else self._message(http))
        except Refusal as refusal:
            await refusal.send(send)
        except Disconnected:
            pass

    def close(self) -> None:
        """Refuse new requests and end the streams, each after the answers to what is under way on it."""
        self._is_open = False
        for line in self._lines.values():
            line.stop_receiving()

    async def _stream(self, http: HttpRequest) -> None:
        if not http.reads.events and http.headers.get(b"accept", b"*/*") != b"*/*":
            raise Refusal(406, RpcError(INVALID_REQUEST, "Accept must allow text/event-stream"))
        if len(self._lines) >= self._most:
            full = f"all {self._most} sessions are in use"
            raise Refusal(503, RpcError(BUSY, full), headers=(_RETRY,))
        id, line = new_uuid(), _Line(http.account)
        self._lines[id] = line
        line.outbox.put(format_event(f"{MESSAGES_PATH}?sessionId={id}".encode(), event="endpoint"))

        async def serve() -> None:
            await serve_duplex(
                line,
                self._service,
                settings=self._settings,
                account=http.account,
                session=id,
                attendance=self._attendance,
                brought=lambda: line.values,
            )
            if not self._is_open:
                line.outbox.put(FAREWELL, must=True)
            line.outbox.close()

        try:
            async with task_group() as group:
                group.start_soon(serve)
                await send_events(line.outbox, http.receive, http.send)
                line.hang_up()
        finally:
            del self._lines[id]
            await line.aclose()

    async def _message(self, http: HttpRequest) -> None:
        query = parse_qs(http.scope["query_string"].decode("latin-1"), max_num_fields=50)
        named = query.get("sessionId")
        if named is None:
            raise Refusal(400, RpcError(INVALID_REQUEST, "Missing sessionId"))
        line = self._lines.get(named[0])
        if line is None or line.account != http.account:
            raise Refusal(404, RpcError(INVALID_REQUEST, "Session not found"))
        check_content_type(http.headers)
        body = await read_body(http, self._settings.max_body_bytes)
        read_message(body)  # so that what is no message is refused here and now
        if not await line.take(body, http.values or {}):
            raise Refusal(503, RpcError(BUSY, "too many messages wait"), headers=(_RETRY,))
        await send_empty(http.send, 202)


class _Line:
    """Satisfies `Duplex`: what POSTs bring is received, what is sent leaves as events through `outbox`."""

    def __init__(self, account: str) -> None:
        self.account = account
        self.outbox = Outbox()
        self.values: Mapping[str, str] = {}
        """What came along with the message that was received last."""
        self._put, self._taken = anyio.create_memory_object_stream[tuple[bytes, Mapping[str, str]]](BACKLOG)

    async def take(self, message: bytes, values: Mapping[str, str]) -> bool:
        """Whether there was room for a message of the client, if need be after a while."""
        with anyio.move_on_after(BACKLOG_S):
            try:
                await self._put.send((message, values))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                raise Refusal(404, RpcError(INVALID_REQUEST, "Session not found")) from None
            return True
        return False

    async def send(self, message: bytes) -> None:
        await self.outbox.has_room()
        if not self.outbox.put(format_event(message, event="message"), must=True):
            raise anyio.BrokenResourceError

    async def receive(self) -> bytes:
        message, self.values = await self._taken.receive()
        return message

    def hang_up(self) -> None:
        """The client has left: nothing more will be received or sent."""
        self.outbox.close(drop=True)
        self.stop_receiving()

    def stop_receiving(self) -> None:
        """No more messages of the client are taken; those that wait still are."""
        self._put.close()

    async def aclose(self) -> None:
        self.hang_up()
        self._taken.close()
