"""The client side of HTTP+SSE, the transport of 2024-11-05, and the choice between it and Streamable HTTP.

A GET opens the one stream on which everything comes; its first event names the address that takes our
messages. To everything above, that is a two-way line like any other, so it is served as one.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from typing import Final, Literal
from urllib.parse import urljoin, urlsplit

import anyio

from nanobot.aio import task_group
from nanobot.http import HttpError, HttpStream
from nanobot.sse import SseEvent, SseParser, SseTooLong
from nanobot.wire.call import Call
from nanobot.wire.carrier import Carrier
from nanobot.wire.client import Connection, ConnectionLost, Heard, Hello, NoAnswer
from nanobot.wire.client_duplex import DuplexConnection, open_duplex
from nanobot.wire.client_http import NotStreamable, open_streamable_http
from nanobot.wire.continuation import Continuation
from nanobot.wire.http_reply import (
    EVENTS,
    JSON,
    MAX_REDIRECTS,
    REDIRECTS,
    Refused,
    Unauthorized,
    media_type,
    origin,
    redirected,
)
from nanobot.wire.rpc import EMPTY, RpcError

log = logging.getLogger(__name__)

ENDPOINT_S: Final = 15.0
"""How long a server may take to answer the GET and to say where it wants our messages."""
SEND_S: Final = 30.0
PING_S: Final = 100.0
"""How often the server is asked for a sign of life: its stream of events need not have any of its own."""
SILENCE_S: Final = 300.0
"""A stream that is silent for so long, answers to pings included, has ended unnoticed."""

HttpTransport = Literal["auto", "streamableHttp", "sse"]
"""auto: Streamable HTTP, and HTTP+SSE with a server that does not know it."""


@asynccontextmanager
async def open_remote(
    http: Carrier,
    url: str,
    hello: Hello,
    heard: Heard,
    *,
    headers: Mapping[str, str],
    transport: HttpTransport = "auto",
    continuation: Continuation | None = None,
) -> AsyncGenerator[Connection]:
    """Shake hands with the server at `url` by the transport it speaks; serve requests until the block ends.

    `continuation`: see `open_streamable_http`; the older transport has no sessions.
    Raises `NoCommonVersion`, `RpcError`, `ConnectionLost`, `Denied`.
    """
    refused: NotStreamable | None = None
    if transport != "sse":
        try:
            async with open_streamable_http(
                http, url, hello, heard, headers=headers, continuation=continuation
            ) as connection:
                yield connection
                return
        except NotStreamable as e:
            if transport == "streamableHttp" or hello.protocol == "modern":
                raise e.refusal from None
            refused = e
    try:
        async with open_http_sse(http, url, hello, heard, headers=headers) as connection:
            yield connection
    except NoSuchStream as e:
        # Where there is no such stream either, what the newer transport was told says more.
        raise (refused.refusal if refused is not None else e) from e


class NoSuchStream(Refused):
    """What answers the GET is no stream of events."""


@asynccontextmanager
async def open_http_sse(
    http: Carrier,
    url: str,
    hello: Hello,
    heard: Heard,
    *,
    headers: Mapping[str, str],
    endpoint_s: float = ENDPOINT_S,
    ping_s: float = PING_S,
    silence_s: float = SILENCE_S,
) -> AsyncGenerator[DuplexConnection]:
    """Shake hands over HTTP+SSE and serve requests until the block ends; the end of its stream is the end.

    Raises `NoCommonVersion`, `RpcError`, `ConnectionLost`, `Denied`.
    """
    sent = {**headers, "Accept": EVENTS, "Accept-Encoding": "identity"}
    try:
        with anyio.CancelScope(deadline=anyio.current_time() + endpoint_s) as opening:
            for _ in range(MAX_REDIRECTS + 1):
                async with http.stream("GET", url, headers=sent, idle_s=silence_s) as reply:
                    if reply.status in REDIRECTS:
                        url = redirected(url, reply)
                        continue
                    _check_stream(reply)
                    async with aclosing(_events(reply)) as events:
                        line = _SseLine(http, await _endpoint(url, events), headers, events)
                        opening.deadline = math.inf  # that was for getting here
                        legacy = replace(hello, protocol="legacy")
                        async with (
                            open_duplex(line, legacy, heard, explain=line.explain) as connection,
                            task_group() as group,
                        ):
                            group.start_soon(_keep_pinging, connection, ping_s)
                            yield connection
                            group.cancel_scope.cancel()
                return
    except HttpError as e:
        raise ConnectionLost(str(e), maybe_sent=e.sent) from e
    if opening.cancelled_caught:
        reason = f"it named no endpoint for messages within {endpoint_s:g} s of a GET for events"
        raise ConnectionLost(reason, maybe_sent=False)
    raise Refused(310, "it redirects in circles")


async def _keep_pinging(connection: Connection, ping_s: float) -> None:
    """Whatever a server answers is a sign of life; where nothing comes, the stream ends."""
    while True:
        await anyio.sleep(ping_s)
        with suppress(RpcError, ConnectionLost, NoAnswer):
            await connection.request("ping", EMPTY, Call(), timeout_s=ping_s)


class _SseLine:
    """Satisfies `Duplex`: messages leave as POSTs to `endpoint`, and come in as `events`.

    A message that the server did not take raises `ConnectionLost` from `send`; the others go on.
    """

    def __init__(
        self, http: Carrier, endpoint: str, headers: Mapping[str, str], events: AsyncIterator[SseEvent]
    ) -> None:
        self._http = http
        self._endpoint = endpoint
        self._headers = {**headers, "Content-Type": JSON, "Accept-Encoding": "identity"}
        self._events = events
        self._reason = "its stream ended"

    async def send(self, message: bytes) -> None:
        status = await self._post(message)
        if status == 401:
            raise Unauthorized("it answered HTTP status 401: it wants credentials")
        if status in (404, 410):  # it has forgotten the stream that is to bring the answer
            raise anyio.BrokenResourceError
        if status >= 300:
            raise Refused(status, f"it answered HTTP status {status} to a message")

    async def _post(self, message: bytes) -> int:
        """The status of the answer, which says no more than that."""
        try:
            for _ in range(MAX_REDIRECTS + 1):
                answer = await self._http.request(
                    "POST", self._endpoint, headers=self._headers, body=message, timeout_s=SEND_S
                )
                if answer.status not in REDIRECTS:
                    return answer.status
                self._endpoint = redirected(self._endpoint, answer)
        except HttpError as e:
            if e.kind == "connect":
                raise anyio.BrokenResourceError from e
            raise ConnectionLost(str(e), maybe_sent=e.sent) from e
        raise Refused(310, "it redirects in circles")

    async def receive(self) -> bytes:
        try:
            async for event in self._events:
                if event.event == "message" and event.data:
                    return event.data
        except (HttpError, SseTooLong) as e:
            self._reason = str(e)
        raise anyio.EndOfStream

    async def aclose(self) -> None:
        pass  # the stream belongs to the block that opened it

    async def explain(self) -> str:
        return self._reason


async def _events(reply: HttpStream) -> AsyncGenerator[SseEvent]:
    parser = SseParser()
    async with aclosing(reply.chunks()) as chunks:
        async for chunk in chunks:
            for event in parser.feed(chunk):
                yield event


async def _endpoint(url: str, events: AsyncIterator[SseEvent]) -> str:
    """Where the first event wants our messages. Raises `ConnectionLost` unless that is the origin of `url`.

    Messages carry our credentials: a server must not be able to have them sent elsewhere.
    """
    named: str | None = None
    try:
        async for event in events:
            if event.event == "endpoint":
                named = event.data.decode("utf-8", "replace").strip()
                break
    except SseTooLong as e:
        raise ConnectionLost(str(e), maybe_sent=False) from e
    if named is None:
        raise ConnectionLost("its stream of events named no endpoint for messages", maybe_sent=False)
    try:
        target = urljoin(url, named)
        where, ours = origin(target), origin(url)
    except ValueError:
        raise ConnectionLost("the endpoint that it named is no address", maybe_sent=False) from None
    if where != ours:
        scheme, host, port = where
        raise ConnectionLost(
            f"it wants our messages sent to another place ({scheme}://{host}:{port}); "
            f"an endpoint must have the scheme, host and port of the url",
            maybe_sent=False,
        )
    parts = urlsplit(target)
    base = urlsplit(url)
    return base._replace(path=parts.path, query=parts.query, fragment="").geturl()


def _check_stream(reply: HttpStream) -> None:
    if reply.status == 401:
        raise Unauthorized("it answered HTTP status 401: it wants credentials")
    if reply.status != 200:
        raise NoSuchStream(reply.status, f"it answered HTTP status {reply.status} to a GET for events")
    if media_type(reply) != EVENTS:
        raise NoSuchStream(200, f"it answered {media_type(reply) or 'no media type'} instead of events")
