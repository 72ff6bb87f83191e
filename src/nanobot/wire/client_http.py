"""The client side of Streamable HTTP, in both eras.

A request is one POST whose answer is JSON or an event stream; it runs in its caller's task. Besides that a
connection owns one stream for what belongs to no request, and says goodbye at its end.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from nanobot.aio import task_group
from nanobot.errors import NanobotError
from nanobot.http import HttpError, HttpStream
from nanobot.sse import SseParser, SseTooLong
from nanobot.wire.call import Call
from nanobot.wire.carrier import Carrier
from nanobot.wire.client import (
    Connected,
    ConnectionLost,
    Denied,
    Heard,
    Hello,
    NoAnswer,
    NoCommonVersion,
    envelope,
    shake_hands,
)
from nanobot.wire.continuation import Continuation, place_of
from nanobot.wire.envelope import NAMED_BY
from nanobot.wire.header_values import header_text
from nanobot.wire.http_reply import (
    EVENTS,
    JSON,
    MAX_REDIRECTS,
    REDIRECTS,
    Later,
    Place,
    Refused,
    SessionGone,
    Unauthorized,
    drain,
    media_type,
    redirected,
    refusal,
    result_in,
)
from nanobot.wire.inbound import Inbound
from nanobot.wire.listening import LASTED_S, changing_lists, growing_pauses, keep_listening
from nanobot.wire.mending import answered_by
from nanobot.wire.notifications import CANCELLED, cancelled
from nanobot.wire.outgoing import Outgoing, answerable, stamped
from nanobot.wire.parameter_headers import ParameterHeaders
from nanobot.wire.rpc import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    UNSUPPORTED_VERSION,
    ErrorResponse,
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

MAX_RESUMES: Final = 5
RETRY_S: Final = 1.0
SILENCE_S: Final = 300.0
"""A stream of news that is silent for so long, keep-alives included, is opened again."""
FAREWELL_S: Final = 2.0
TELL_S: Final = 30.0
MAX_TOOL_PAGES: Final = 100


NOT_STREAMABLE: Final = frozenset({400, 404, 405, 406, 415, 501})
"""What a server that knows nothing of Streamable HTTP may answer to the POST of an `initialize`."""


class NotStreamable(NanobotError):
    """The handshake was refused in the way of a server of an older transport. `refusal` is what it said."""

    code = "connection.not_streamable"

    def __init__(self, refusal: RpcError) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


@asynccontextmanager
async def open_streamable_http(
    http: Carrier,
    url: str,
    hello: Hello,
    heard: Heard,
    *,
    headers: Mapping[str, str],
    continuation: Continuation | None = None,
) -> AsyncGenerator[HttpConnection]:
    """Shake hands with the server at `url` and serve requests until the block ends.

    A `continuation` of that address stands for the handshake; one that the server has forgotten is replaced
    by a new session with the first request. `headers` go with every request.
    Raises `NotStreamable`, `NoCommonVersion`, `RpcError`, `ConnectionLost`, `Denied`.
    """
    async with task_group() as group:
        connection = HttpConnection(http, url, hello, heard, headers, group)
        try:
            await connection.open(continuation)
            yield connection
        finally:
            group.cancel_scope.cancel()
            with anyio.move_on_after(FAREWELL_S, shield=True):
                await connection.say_goodbye()


class HttpConnection:
    """Satisfies `wire.client.Connection` and `Handshaker`; made by `open_streamable_http`."""

    connected: Connected

    def __init__(
        self,
        http: Carrier,
        url: str,
        hello: Hello,
        heard: Heard,
        headers: Mapping[str, str],
        group: TaskGroup,
    ) -> None:
        self._http = http
        self._url = url
        self._place = place_of(url)
        self.keeps_session = False
        """Whether the session goes on after this connection."""
        self._hello = hello
        self._heard = heard
        self._group = group
        self._configured = dict(headers)
        self._version: str | None = None
        self._session: str | None = None
        self._continuation: Continuation | None = None  # the one that was last asked for
        self._unproven: str | None = None  # a session to go on with that the server has not yet shown to know
        self._refused_with: int | None = None  # the status of the last refusal
        self._post_headers = self._build_post_headers()
        self._ids = count(1)
        self._inbound = Inbound(heard, group, self._reply, hello)
        self._renewal = anyio.Lock()
        self._hearing: anyio.CancelScope | None = None
        self._end_reason: str | None = None
        self._ended = anyio.Event()
        self._renewed = anyio.Event()
        self._parameters = ParameterHeaders()

    # Beginning and end

    async def open(self, continuation: Continuation | None) -> None:
        if continuation is not None and continuation.is_at(self._url):
            self._session = self._unproven = continuation.id
            self._adopt(continuation.connected)
        else:
            self._adopt(await self._handshake())
        self._group.start_soon(keep_listening, self, self._hello.discretion.hide)

    async def _handshake(self) -> Connected:
        try:
            return await shake_hands(self, self._hello, probe=True)
        except RpcError as refusal:
            if self._refused_with in NOT_STREAMABLE and refusal.rpc_code != UNSUPPORTED_VERSION:
                raise NotStreamable(refusal) from refusal
            if self._refused_with == 403:  # whatever its body says
                raise Refused(403, f"it refused the handshake: {refusal}") from refusal
            raise

    @property
    def continuation(self) -> Continuation | None:
        """What it takes to go on with the session over another connection; None without one."""
        if self._session is None or self._version is None:
            return None
        known = self._continuation
        if known is None or known.id != self._session or known.connected is not self.connected:
            known = self._continuation = Continuation(self._place, self._session, self.connected)
        return known

    async def say_goodbye(self) -> None:
        """End the session, if there is one that is not to go on. A server need not support it."""
        self._end("the connection was closed")
        if self._session is None or self.keeps_session:
            return
        try:
            await self._http.request("DELETE", self._url, headers=self._plain_headers(), timeout_s=FAREWELL_S)
        except (HttpError, ConnectionLost) as e:
            log.debug("session not ended", extra={"reason": self._hello.discretion.hide(str(e))})

    @property
    def is_alive(self) -> bool:
        return self._end_reason is None

    async def lost(self) -> str:
        await self._ended.wait()
        return self._end_reason or ""

    async def renewed(self) -> None:
        await self._renewed.wait()

    def _end(self, reason: str) -> None:
        if self._end_reason is None:
            self._end_reason = reason
            self._ended.set()

    def _adopt(self, connected: Connected) -> None:
        self.connected = connected
        self._version = connected.version
        self._post_headers = self._build_post_headers()
        if connected.era == "legacy":
            if self._hearing is not None:
                self._hearing.cancel()
            self._hearing = anyio.CancelScope()
            self._group.start_soon(self._keep_hearing, self._hearing)

    async def _renew(self, session: str) -> None:
        """Shake hands again because `session` is gone; one task does it, the others wait for it."""
        async with self._renewal:
            if self._session != session:
                return
            self._session = self._version = None
            self._post_headers = self._build_post_headers()
            reason = "its session ended and no new one began"
            try:
                self._adopt(await shake_hands(self, replace(self._hello, protocol="legacy"), probe=False))
            except (RpcError, ConnectionLost, NoCommonVersion, Denied) as e:
                raise ConnectionLost(f"{reason}: {e}", maybe_sent=False) from e
            finally:
                if self._version is None:
                    self._end(reason)  # also when the task that did it for all was cancelled
            self._suppose_changes()
            self._renewed.set()
            self._renewed = anyio.Event()

    # Requests

    async def request(self, method: str, params: Payload, call: Call, *, timeout_s: float) -> Payload:
        outgoing = Outgoing(next(self._ids), call, timeout_s)
        self._inbound.under_way[outgoing.id] = outgoing
        try:
            async with outgoing.clock:
                return await self._deliver(outgoing, method, params)
        except TimeoutError:
            self._withdraw(outgoing)
            raise NoAnswer(timeout_s) from None
        except anyio.get_cancelled_exc_class():
            self._withdraw(outgoing)
            raise
        finally:
            del self._inbound.under_way[outgoing.id]

    async def notify(self, method: str, params: Payload) -> None:
        await self._tell(encode_notification(method, params), method)

    async def ask(self, method: str, params: Payload, *, version: str | None) -> Payload:
        outgoing = Outgoing(next(self._ids), Call(), None)
        self._refused_with = None
        headers = self._post_headers
        if version is None:
            self._session = None
        else:
            headers = headers | {"MCP-Protocol-Version": version, "Mcp-Method": method}
        try:
            message = encode_request(outgoing.id, method, params)
            return await self._post(outgoing, message, headers, begins=version is None)
        except Unauthorized:
            raise  # no other handshake would be welcome either
        except Refused as refusal:
            raise RpcError(INTERNAL_ERROR, refusal.reason) from refusal
        except Later as later:
            raise ConnectionLost(f"HTTP status {later.status}", maybe_sent=False) from later

    async def tell(self, method: str, params: Payload | None = None, *, version: str) -> None:
        self._version = version
        self._post_headers = self._build_post_headers()
        await self._tell(encode_notification(method, params), method)

    async def listen(self, params: Payload, acknowledged: Callable[[Payload], None] | None = None) -> None:
        """Keep a subscription open until the server ends it. Raises `RpcError`, `ConnectionLost`."""
        method, outgoing = "subscriptions/listen", Outgoing(next(self._ids), Call(), None)
        params = stamped(params, outgoing.call, token=None, envelope=self._envelope(outgoing.call))
        message = encode_request(outgoing.id, method, params)
        if acknowledged is not None:
            self._inbound.acknowledged[outgoing.id] = acknowledged
        try:
            headers = self._headers_for(method, params, outgoing.call)
            await self._post(outgoing, message, headers, idle_s=SILENCE_S)
        except (SessionGone, Later) as e:
            raise ConnectionLost("the server refused it for now", maybe_sent=False) from e
        finally:
            self._inbound.acknowledged.pop(outgoing.id, None)

    async def _deliver(self, outgoing: Outgoing, method: str, params: Payload) -> Payload:
        """The result; asked for a second time only where the server said that it did not run the first."""
        call = outgoing.call
        token = outgoing.id if call.wants_progress else None
        for is_last in (False, True):
            if self._renewal.locked():
                async with self._renewal:
                    pass  # wait for the new session
            sent = stamped(params, call, token=token, envelope=self._envelope(call))
            message = encode_request(outgoing.id, method, sent)
            session = self._session
            try:
                result = await self._post(outgoing, message, self._headers_for(method, sent, call))
            except SessionGone:
                if is_last or session is None:
                    raise ConnectionLost("its session ended twice in a row", maybe_sent=False) from None
                await self._renew(session)
            except Later as later:
                if is_last:
                    raise ConnectionLost(
                        f"it is busy (HTTP status {later.status})", maybe_sent=False
                    ) from None
                await anyio.sleep(later.after_s)
            except RpcError as refusal:
                if is_last or method != "tools/call" or refusal.rpc_code != HEADER_MISMATCH:
                    raise
                await self._learn_parameters()  # somebody else has read the list, or it has changed
            else:
                if method == "tools/list" and self.connected.era == "modern":
                    self._parameters.learn(result)
                return result
        raise AssertionError("unreachable")

    async def _learn_parameters(self) -> None:
        """Read the list of tools for what it says about headers."""
        params: dict[str, Any] = {}
        for _ in range(MAX_TOOL_PAGES):
            page = await self.request("tools/list", Payload.of(params), Call(), timeout_s=TELL_S)
            cursor = Payload.encoded(page.members().get("nextCursor", b"null")).value
            if not isinstance(cursor, str):
                return
            params["cursor"] = cursor

    def _withdraw(self, outgoing: Outgoing) -> None:
        """Tell a legacy server that nobody waits; to a modern one the closed stream has said so."""
        if self.connected.era == "legacy" and self.is_alive:
            self._group.start_soon(self._tell_quietly, cancelled(outgoing.id), CANCELLED)

    def _envelope(self, call: Call) -> Mapping[str, object]:
        if self.connected.era == "legacy":
            return {}
        return envelope(
            self._hello,
            self.connected.version,
            answerable(call, self._hello.capabilities),
            log_level=call.log_level,
        )

    # One POST

    async def _post(
        self,
        outgoing: Outgoing,
        message: bytes,
        headers: Mapping[str, str],
        *,
        idle_s: float | None = None,
        begins: bool = False,
    ) -> Payload:
        """`begins`: whether the answer names the session that begins with it."""
        place = Place()
        try:
            for _ in range(MAX_REDIRECTS + 1):
                async with self._http.stream(
                    "POST", self._url, headers=headers, body=message, idle_s=idle_s
                ) as reply:
                    if reply.status == 200:
                        self._unproven = None
                        if begins:
                            self._session = reply.headers.get("Mcp-Session-Id")
                        kind = media_type(reply)
                        if kind == JSON:
                            return await result_in(reply, outgoing.id)
                        if kind != EVENTS:
                            raise Refused(200, f"it answered {kind or 'no media type'} instead of JSON")
                        result = await self._read_events(reply, outgoing, place)
                        if result is not None:
                            return result
                        break
                    if reply.status not in REDIRECTS:
                        self._refused_with = reply.status
                        if reply.status == 400 and headers.get("Mcp-Session-Id", "") == self._unproven:
                            raise SessionGone  # some servers say so of a session that they do not know
                        raise await refusal(reply, headers)
                    self._url = redirected(self._url, reply)
            else:
                raise Refused(310, "it redirects in circles")
            return await self._resume(outgoing, place)
        except HttpError as e:
            raise self._lost(e) from e

    async def _read_events(
        self, reply: HttpStream, outgoing: Outgoing | None, place: Place
    ) -> Payload | None:
        """Handle what arrives until `outgoing` is answered; None if the stream ends before that.

        Raises `RpcError` if the answer is one.
        """
        parser = SseParser()
        try:
            async with aclosing(reply.chunks()) as chunks:
                async for chunk in chunks:
                    for event in parser.feed(chunk):
                        place.note(event)
                        if not event.data or event.event != "message":
                            continue
                        if (outcome := self._take(event.data, outgoing)) is not None:
                            await drain(chunks)
                            if isinstance(outcome, RpcError):
                                raise outcome
                            return outcome
        except HttpError as e:
            if e.kind != "closed":
                raise
            log.debug("stream cut off", extra={"reason": self._hello.discretion.hide(str(e))})
        except SseTooLong as e:
            raise ConnectionLost(str(e), maybe_sent=True) from e
        return None

    async def _resume(self, outgoing: Outgoing, place: Place) -> Payload:
        """Take up a stream that ended before its answer, where the server gave its events ids."""
        while place.event_id is not None and place.tries < MAX_RESUMES:
            place.tries += 1
            await anyio.sleep(RETRY_S if place.retry_s is None else place.retry_s)
            headers = {**self._get_headers(place.event_id), **outgoing.call.to_server}
            try:
                async with self._http.stream("GET", self._url, headers=headers, idle_s=SILENCE_S) as reply:
                    if reply.status != 200 or media_type(reply) != EVENTS:
                        break
                    result = await self._read_events(reply, outgoing, place)
            except HttpError as e:
                log.debug("stream not resumed", extra={"reason": self._hello.discretion.hide(str(e))})
                continue
            except ConnectionLost as e:  # only the resumption was not carried out; the request was
                raise ConnectionLost(e.reason, maybe_sent=True) from e
            if result is not None:
                return result
        raise ConnectionLost("its stream ended before the answer", maybe_sent=True)

    def _lost(self, e: HttpError) -> ConnectionLost:
        if e.kind in ("connect", "tls", "bad_url"):
            self._end(str(e))
        return ConnectionLost(str(e), maybe_sent=e.sent)

    # What the server says

    def _take(self, data: bytes, outgoing: Outgoing | None) -> Payload | RpcError | None:
        """Handle one message of a stream; the outcome if it is the answer to `outgoing`."""
        try:
            message = decode(data, mend=True)
        except RpcError as e:
            log.warning(
                "event skipped: it is no message", extra={"reason": self._hello.discretion.hide(e.message)}
            )
            if outgoing is None or answered_by(data) != outgoing.id:
                return None
            return RpcError(INTERNAL_ERROR, f"the server's answer is no message: {e.message}")
        match message:
            case Response(id=id, result=result):
                return result if outgoing is not None and id == outgoing.id else None
            case ErrorResponse(id=id, error=error):
                return error if outgoing is not None and id in (outgoing.id, None) else None
            case Notification():
                self._inbound.hear(message, outgoing)
            case Request():
                if self.is_alive:
                    self._inbound.ask(message, outgoing)
        return None

    async def _keep_hearing(self, scope: anyio.CancelScope) -> None:
        """Keep the stream of a legacy session's news open; returns if the server has none."""
        with scope:
            place, pauses = Place(), growing_pauses()
            while True:
                opened, events = anyio.current_time(), place.events
                if not await self._hear_stream(place):
                    return
                pause = next(pauses)
                if place.events > events or anyio.current_time() - opened > LASTED_S:
                    pauses = growing_pauses()
                    pause = place.retry_s or next(pauses)
                await anyio.sleep(pause)
                if place.event_id is None:
                    self._suppose_changes()

    async def _hear_stream(self, place: Place) -> bool:
        """Read one stream of news to its end; False if it makes no sense to open another."""
        try:
            async with self._http.stream(
                "GET", self._url, headers=self._get_headers(place.event_id), idle_s=SILENCE_S
            ) as reply:
                if 400 <= reply.status < 500 and reply.status not in (408, 429):
                    return False
                if reply.status == 200 and media_type(reply) == EVENTS:
                    await self._read_events(reply, None, place)
        except (HttpError, ConnectionLost) as e:
            log.debug("stream of news ended", extra={"reason": self._hello.discretion.hide(str(e))})
        return True

    def _suppose_changes(self) -> None:
        """Take it that every list may have changed while nobody listened."""
        for name in changing_lists(self.connected.capabilities):
            self._heard(f"notifications/{name}/list_changed", Payload.of({}))

    # Words that want no answer

    async def _tell(self, message: bytes, method: str) -> None:
        headers = self._post_headers
        if self._version is not None and self._session is None and "Mcp-Method" not in headers:
            headers = headers | {"Mcp-Method": method}
        try:
            answer = await self._http.request(
                "POST", self._url, headers=headers, body=message, timeout_s=TELL_S
            )
        except HttpError as e:
            raise self._lost(e) from e
        if answer.status == 401:
            raise Unauthorized(f"it wants credentials for {method}")
        if answer.status >= 300:
            raise Refused(answer.status, f"it answered HTTP status {answer.status} to {method}")

    async def _reply(self, message: bytes) -> None:
        await self._tell_quietly(message, "an answer")

    async def _tell_quietly(self, message: bytes, method: str) -> None:
        try:
            await self._tell(message, method)
        except ConnectionLost as e:
            log.debug("the server could not be told", extra={"reason": self._hello.discretion.hide(e.reason)})

    # Headers

    def _build_post_headers(self) -> dict[str, str]:
        return self._plain_headers() | {"Accept": f"{JSON}, {EVENTS}", "Content-Type": JSON}

    def _plain_headers(self) -> dict[str, str]:
        headers = self._configured | {"Accept-Encoding": "identity"}
        if self._version is not None:
            headers["MCP-Protocol-Version"] = self._version
        if self._session is not None:
            headers["Mcp-Session-Id"] = self._session
        return headers

    def _get_headers(self, event_id: str | None) -> dict[str, str]:
        headers = self._plain_headers() | {"Accept": EVENTS}
        return headers if event_id is None else headers | {"Last-Event-ID": event_id}

    def _headers_for(self, method: str, params: Payload, call: Call) -> Mapping[str, str]:
        """The headers of one request. Modern servers and proxies route by method and name."""
        if self.connected.era == "legacy":
            return {**self._post_headers, **call.to_server} if call.to_server else self._post_headers
        headers = self._post_headers | {"Mcp-Method": method}
        if (member := NAMED_BY.get(method)) is not None:
            name = Payload.encoded(params.members().get(member, b'""')).value
            if isinstance(name, str):
                headers["Mcp-Name"] = header_text(name)
                if method == "tools/call":
                    headers.update(self._parameters.of(name, params))
        if call.to_server:
            headers.update(call.to_server)
        return headers
