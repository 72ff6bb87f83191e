"""The application with an audit log: what is said at the MCP endpoint is noted as it passes.

Outside everything else, so that a request that is refused at the gate is noted too. Nothing that passes is
held up or changed; what is noted of a message is worked out after it was sent.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import anyio
import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nanobot.hub.audit.log import AuditLog
from nanobot.hub.audit.record import Body
from nanobot.hub.audit.redaction import (
    MAX_BODY,
    MAX_ERROR,
    Bodies,
    secrets_in,
    shown_body,
    shown_headers,
    shown_key,
    truncated,
)
from nanobot.hub.audit.trail import following, hook_fields
from nanobot.hub.hooks.record import HookRecord
from nanobot.sse import SseParser, SseTooLong
from nanobot.telemetry import trace_id_in
from nanobot.upstream.secrecy import RecentSecrets, Secrecy
from nanobot.wire.versions import META_CLIENT_INFO

MAX_CLIENTS: Final = 10_000
"""Of how many sessions it is remembered which client opened them."""

ServerOf = Callable[[str, str, str], str]
"""Which server a request (method, name or URI, account) goes to; "" for none or several."""


class Audited:
    """`inner`, every exchange at a path for which `is_mcp(method, path)` holds being noted."""

    def __init__(
        self,
        inner: ASGIApp,
        log: AuditLog,
        *,
        is_mcp: Callable[[str, str], bool],
        server_of: ServerOf,
    ) -> None:
        self._inner = inner
        self._log = log
        self._is_mcp = is_mcp
        self._server_of = server_of
        self._clients: OrderedDict[str, tuple[str, str]] = OrderedDict()  # by session, the oldest first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope.get("method", "")
        if method not in ("POST", "GET", "DELETE") or not self._is_mcp(method, scope["path"]):
            await self._inner(scope, receive, send)
            return
        passing = _Passing(scope, receive, send, self._log.bodies)
        passing.relayed = lambda message: self._note_relayed(passing, message)
        trace_id = trace_of(scope)
        started = time.monotonic()
        if method == "GET":
            passing.opened = lambda: self._note(passing, started, trace_id)
            await self._inner(scope, passing.receive, passing.send)
            if not passing.was_opened:
                self._note(passing, started, trace_id)
            return
        fault = ""
        try:
            with following() as passing.hooks:
                await self._inner(scope, passing.receive, passing.send)
        except anyio.get_cancelled_exc_class():
            fault = "the server stopped before the answer was complete"
            raise
        except Exception as e:
            fault = f"internal error ({type(e).__name__})"
            raise
        finally:
            self._note(passing, started, trace_id, fault)

    def _note(self, passing: _Passing, started: float, trace_id: str, fault: str = "") -> None:
        """Note the exchange itself. An answer of the client to a question is no exchange of its own."""
        request = passing.request()
        method = passing.scope["method"]
        if method == "POST" and request.is_answer:
            return
        secrecy = passing.secrecy()
        answer, error = passing.answer(request.id, secrecy)
        if method == "POST":
            call_type = request.method or "invalid"
            if not passing.status and not fault:
                fault = "the client left before the answer"
        else:
            call_type = "sse/stream" if method == "GET" else "session/delete"
        name = request.identifier()
        state = passing.scope.get("state", {})
        server = self._server_of(request.method, name, state.get("account", "")) if name else ""
        self._log.record(
            callType=call_type,
            callIdentifier=name,
            requestID="" if request.id is None else str(request.id),
            requestBody=shown_body(passing.body, self._log.bodies, secrecy),
            responseBody=answer,
            responseHeaders=shown_headers(passing.headers),
            error=secrecy.hide(error or fault)[:MAX_ERROR],
            processingTimeMs=round((time.monotonic() - started) * 1000),
            server=state.get("server") or server,
            responseStatus=passing.status,
            traceID=trace_id,
            **hook_fields(passing.hooks, self._log.bodies, secrecy),
            **self._caller(passing, request),
        )

    def _note_relayed(self, passing: _Passing, message: bytes) -> None:
        """Note a request or notification that goes to the client."""
        relayed = _read(message)
        if not relayed.method:
            return
        self._log.record(
            callType=relayed.method,
            requestID="" if relayed.id is None else str(relayed.id),
            requestBody=shown_body(message, self._log.bodies, passing.secrecy()),
            responseStatus=200,
            **self._caller(passing, _NOTHING),
        )

    def _caller(self, passing: _Passing, request: _Envelope) -> dict[str, Any]:
        """Who is at the other end, as fields of an entry."""
        scope = passing.scope
        sent: dict[bytes, bytes] = dict(scope["headers"])
        session = (
            sent.get(b"mcp-session-id")
            or sent.get(b"x-nanobot-session-id")
            or dict(passing.headers).get(b"mcp-session-id", b"")
        ).decode("latin-1")
        client = request.client()
        if client is not None:
            if session and request.method == "initialize":
                self._clients[session] = client
                if len(self._clients) > MAX_CLIENTS:
                    self._clients.popitem(last=False)
        else:
            client = self._clients.get(session, ("", ""))
        state: dict[str, Any] = scope.get("state", {})
        return {
            "accountID": state.get("account", ""),
            "subject": getattr(state.get("principal"), "account", ""),
            "apiKey": shown_key(sent.get(b"authorization", b"").decode("latin-1")),
            "clientName": client[0],
            "clientVersion": client[1],
            "clientIP": (scope.get("client") or ("",))[0],
            "sessionID": session,
            "userAgent": sent.get(b"user-agent", b"").decode("latin-1"),
            "requestHeaders": shown_headers(scope["headers"]),
        }


def trace_of(scope: Scope) -> str:
    """The id of the trace that a request belongs to: ours, else the one in its header; "" without."""
    state: dict[str, Any] = scope.get("state", {})
    ours: str = state.get("trace_id", "")
    return ours or trace_id_in(dict(scope["headers"]).get(b"traceparent", b"").decode("latin-1"))


class _Passing:
    """One HTTP exchange being looked at while it passes."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, bodies: Bodies) -> None:
        self.scope = scope
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.was_opened = False
        self.hooks: list[HookRecord] = []
        self.opened: Callable[[], None] | None = None
        self.relayed: Callable[[bytes], None] = lambda message: None
        self._receive = receive
        self._send = send
        self._bodies: Bodies = bodies
        self._pieces: list[bytes] = []
        self._answer: list[bytes] = []
        self._answer_size = 0
        self._digest = hashlib.sha256()
        self._events: SseParser | None = None
        self._responses: list[bytes] = []

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request" and message.get("body"):
            self._pieces.append(message["body"])
        return message

    async def send(self, message: Message) -> None:
        await self._send(message)
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = list(message.get("headers", ()))
            kind = dict(self.headers).get(b"content-type", b"")
            if kind.startswith(b"text/event-stream"):
                self._events = SseParser()
                if self.opened is not None:
                    self.was_opened = True
                    self.opened()
        elif message["type"] == "http.response.body":
            self._look_at(message.get("body", b""))

    @property
    def body(self) -> bytes:
        return b"".join(self._pieces)

    def request(self) -> _Envelope:
        return _read(self.body)

    def secrecy(self) -> Secrecy:
        """Hides what the request was sent with: its tokens, and what callers bring along for servers."""
        values: Mapping[str, str] = self.scope.get("state", {}).get("values") or {}
        secrets = RecentSecrets()
        secrets.remember(*secrets_in(self.scope["headers"]), *values.values())
        return Secrecy(secrets)

    def answer(self, id: object, secrecy: Secrecy) -> tuple[Body, str]:
        """The answer as it is shown, and the error in it."""
        if self._answer_size > MAX_BODY:
            return truncated(self._answer_size, self._digest.hexdigest()), self._failure("")
        text = b"".join(self._answer)
        for response in self._responses:  # of a stream: whichever answers the request
            if _read(response).id == id:
                text = response
        return shown_body(text, self._bodies, secrecy), self._failure(_read(text).error_message())

    def _failure(self, message: str) -> str:
        return message or (f"HTTP status {self.status}" if self.status >= 400 else "")

    def _look_at(self, chunk: bytes) -> None:
        if self._events is None:
            self._answer_size += len(chunk)
            self._digest.update(chunk)
            if self._answer_size <= MAX_BODY:
                self._answer.append(chunk)
            return
        try:
            events = self._events.feed(chunk)
        except SseTooLong:
            self._events = SseParser()
            return
        for event in events:
            if event.comment or not event.data:
                continue
            if _read(event.data).method:
                self.relayed(event.data)
            else:
                self._responses[:] = [event.data]


class _Envelope(msgspec.Struct):
    """As much of a JSON-RPC message as the log needs. Without method, result and error it is none."""

    id: Any = None
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"null")
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def is_answer(self) -> bool:
        return not self.method and (self.result is not msgspec.UNSET or self.error is not msgspec.UNSET)

    def identifier(self) -> str:
        """The tool or prompt name or the resource URI that the request is about."""
        named = _params(self.params)
        if self.method in ("tools/call", "prompts/get"):
            return named.name if isinstance(named.name, str) else ""
        return named.uri if self.method.startswith("resources/") and isinstance(named.uri, str) else ""

    def client(self) -> tuple[str, str] | None:
        """Name and version of the client, where the message tells them."""
        params = _params(self.params)
        info = (
            params.clientInfo if self.method == "initialize" else _members(params.meta).get(META_CLIENT_INFO)
        )
        known = _members(info)
        return (str(known.get("name", "")), str(known.get("version", ""))) if known else None

    def error_message(self) -> str:
        if self.error is msgspec.UNSET:
            return ""
        try:
            return str(msgspec.json.decode(self.error, type=dict[str, Any]).get("message", "error"))
        except (msgspec.DecodeError, RecursionError):
            return "error"


class _Params(msgspec.Struct):
    name: Any = None
    uri: Any = None
    clientInfo: Any = None
    meta: Any = msgspec.field(name="_meta", default=None)


_NOTHING: Final = _Envelope()
_envelope: Final = msgspec.json.Decoder(_Envelope)
_params_decoder: Final = msgspec.json.Decoder(_Params)


def _read(message: bytes) -> _Envelope:
    try:
        return _envelope.decode(message) if message else _NOTHING
    except (msgspec.DecodeError, RecursionError):
        return _NOTHING


def _members(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _params(raw: msgspec.Raw) -> _Params:
    try:
        return _params_decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return _Params()
