"""The MCP endpoint over HTTP: one address, both eras.

A POST carries one message. The answer to a request is JSON if it is there at once, an event stream if
it takes longer or makes news on the way. Legacy clients have a session and may open a stream of their
own (GET) and resume a broken one; modern clients have neither.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Final

import anyio
from anyio.abc import TaskStatus

from nanobot.aio import task_group
from nanobot.config.model import ServerSettings, SessionSettings
from nanobot.errors import Busy, StoreError
from nanobot.wire.attendance import Attendance, attending
from nanobot.wire.call import Audience, Caller
from nanobot.wire.changes import change_key
from nanobot.wire.dispatch import Dispatcher, Outcome
from nanobot.wire.envelope import open_envelope, repeated_header, unsupported
from nanobot.wire.event_stream import Clock
from nanobot.wire.exchange import Meta, cancelled_by, read_meta
from nanobot.wire.explain import NeedsCredentials
from nanobot.wire.home import Home
from nanobot.wire.http_exchange import HttpExchange
from nanobot.wire.http_refusals import (
    missing_session,
    not_allowed,
    stopping,
    store_down,
    too_full,
    unknown_session,
)
from nanobot.wire.http_request import (
    Accepts,
    Disconnected,
    Header,
    HttpRequest,
    Receive,
    Refusal,
    Scope,
    Send,
    agent_header,
    check_content_type,
    read_body,
    read_message,
    send_empty,
    session_id,
    session_names,
    target,
    title_header,
)
from nanobot.wire.notifications import CHANGES, PREFIX
from nanobot.wire.reading import opened_by_get
from nanobot.wire.rpc import (
    BUSY,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    ErrorResponse,
    Id,
    Notification,
    Payload,
    Request,
    Response,
    RpcError,
    encode_notification,
)
from nanobot.wire.service import Service
from nanobot.wire.session import Session
from nanobot.wire.sessions import FRESH_S, Sessions
from nanobot.wire.side_tasks import Patience, SideTasks
from nanobot.wire.sse_response import send_events
from nanobot.wire.versions import ALL_VERSIONS, LEGACY_VERSIONS, META_SESSION, META_VERSION, MODERN_VERSIONS

log = logging.getLogger(__name__)

Challenge = Callable[[Scope, NeedsCredentials], Header]
"""The header `WWW-Authenticate` of a 401 to a request."""

LAZY_S: Final = 0.15
"""How long an answer may take before its stream is opened without any news."""

UNCHALLENGED_S: Final = 5.0
"""The same where a server behind us may want other credentials: no status can follow an open stream."""

SWEEP_S: Final = 15.0
LAST_SAVE_S: Final = 5.0
"""Time for saving what changed, when we stop."""
MAX_HANDSHAKE_BYTES: Final = 64 * 1024
"""What a client may say about itself: it is kept for as long as its session."""
MAX_NEWS: Final = 10_000
"""Messages that may wait to be passed on; what comes on top is dropped, as for every slow reader."""
MAX_THREADS: Final = 10_000
"""Of how many threads it is remembered that they exist."""
FAN_OUT: Final = 200
"""How many sessions are told of a change before others get their turn."""

_ALLOW: Final[Header] = (b"allow", b"GET, POST, DELETE, OPTIONS")
_LEGACY: Final = frozenset(version.encode() for version in LEGACY_VERSIONS)
_MODERN: Final = frozenset(version.encode() for version in MODERN_VERSIONS)
_MODERN_STATUS: Final[Mapping[int, int]] = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}


class McpEndpoint:
    """A plain ASGI application; `run` must be running while it serves.

    `scope["state"]["account"]` names who asks, as an authenticator in front has found out ("" without), and
    `scope["state"]["values"]` what they brought along (`Caller.values`).
    """

    def __init__(
        self,
        service: Service,
        *,
        settings: ServerSettings,
        session_settings: SessionSettings,
        home: Home | None = None,
        attendance: Attendance | None = None,
        challenge: Challenge | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """`challenge`: a client whose token a server refused is told so with HTTP status 401.

        `clock` counts seconds; sessions and replayable events age by it.

        `home` is what outlives this process: without one, sessions do not. `attendance` is told of them.
        """
        home = home or Home()
        self._has_thread = home.has_thread
        self._threads: dict[tuple[str, str], float] = {}
        self._attendance = attendance
        self._service = service
        self._settings = settings
        self._clock = clock
        self._side_tasks = SideTasks()
        self._dispatcher = Dispatcher(service, settings, self._side_tasks.start_soon, home)
        self._sessions = Sessions(
            session_settings,
            clock,
            home.sessions,
            attendance,
            restored=self._session_restored,
            parted=self._session_parted,
        )
        self._changes: dict[tuple[str, Audience], tuple[str, Payload]] = {}
        self._changed = anyio.Event()
        self._news = count()
        self._is_open = False
        self._challenge = challenge
        self._patience = Patience(LAZY_S if challenge is None else UNCHALLENGED_S)
        self._under_way: set[HttpExchange] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        http = HttpRequest(scope, receive, send)
        try:
            if not self._is_open:
                raise stopping()
            match scope["method"]:
                case "POST":
                    await self._post(http)
                case "GET":
                    await self._get(http)
                case "DELETE":
                    await self._delete(http)
                case "OPTIONS":
                    await send_empty(send, 204, (_ALLOW,))
                case other:
                    raise not_allowed(other, _ALLOW)
        except Refusal as refusal:
            await refusal.send(send)
        except Disconnected:
            pass

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own what goes on beside the requests. When cancelled, open streams are ended in order."""
        unwatch = self._service.watch(self._note_change)
        try:
            async with task_group() as group:
                await group.start(self._side_tasks.run)
                group.start_soon(self._sweep)
                group.start_soon(self._sessions.run_saving)
                self._is_open = True
                task_status.started()
                try:
                    await self._tell_changes()
                finally:
                    self.close()
                    self._side_tasks.end()
                    with anyio.move_on_after(LAST_SAVE_S, shield=True):
                        await self._sessions.close()
        finally:
            unwatch()

    @property
    def sessions(self) -> Sessions:
        """Those that live here. To be looked at, not to be used."""
        return self._sessions

    def close(self) -> None:
        """Refuse new requests and end the streams that wait for news; what is under way will be answered.

        To be called before a server waits for its connections: such a stream never ends by itself.
        """
        self._is_open = False
        self._dispatcher.listeners.close()
        for session in self._sessions:
            if session.standalone is not None:
                session.standalone.say_farewell()
                session.standalone.end()

    def give_up(self) -> None:
        """Answer every request that is still under way with an error that says that we stop."""
        for exchange in tuple(self._under_way):
            exchange.give_up()

    # The methods of HTTP

    async def _post(self, http: HttpRequest) -> None:
        if not (http.reads.json or http.reads.events):
            raise Refusal(406, RpcError(INVALID_REQUEST, "Accept must allow JSON or text/event-stream"))
        check_content_type(http.headers)
        body = await read_body(http, self._settings.max_body_bytes)
        message = read_message(body)
        if isinstance(message, Request) and not message.method.startswith(PREFIX):
            await self._request(http, message)
            return
        if http.version in _MODERN:
            if isinstance(message, Response | ErrorResponse):
                raise Refusal(400, RpcError(INVALID_REQUEST, "this version knows no requests to clients"))
            # A modern client cancels by leaving; there is no other notification that could mean anything.
            await send_empty(http.send, 202)
            return
        self._check_version(http, None)
        session = self._living(http) or await self._session(http, None)
        self._sessions.use(session)
        if isinstance(message, Response | ErrorResponse):
            session.questions.settle(message)
        else:
            self._take_note(session, message, http)
        session.used_at = self._clock()
        await send_empty(http.send, 202, (session.header,))

    def _take_note(self, session: Session, note: Notification | Request, http: HttpRequest) -> None:
        """A notification of a legacy client. Those that mean nothing to us may mean something to a server."""
        if (cancelled := cancelled_by(note)) is not None:
            id, reason = cancelled
            if (exchange := session.requests.get(id)) is not None:
                exchange.cancel(reason)
        else:
            self._dispatcher.pass_on(session.peer, note, http.values or {})

    async def _get(self, http: HttpRequest) -> None:
        if http.version in _MODERN:
            raise not_allowed("GET", (b"allow", b"POST"))
        if not http.reads.events and http.headers.get(b"accept", b"*/*") != b"*/*":
            raise Refusal(406, RpcError(INVALID_REQUEST, "Accept must allow text/event-stream"))
        session = self._living(http) or await self._session(http, None)
        stream, outbox = opened_by_get(session, http.headers.get(b"last-event-id"))
        try:
            await send_events(outbox, http.receive, http.send, (session.header,))
        finally:
            if stream is not None:
                stream.detach(outbox)
            session.used_at = self._clock()

    async def _delete(self, http: HttpRequest) -> None:
        if http.version in _MODERN:
            raise not_allowed("DELETE", (b"allow", b"POST"))
        if (named := session_id(http)) is None:
            raise missing_session(None)
        try:
            is_deleted = await self._sessions.delete(named, http.account)
        except StoreError as failure:
            raise store_down(failure, None) from failure
        if not is_deleted:
            raise unknown_session(None)
        await send_empty(http.send, 200)

    # Requests of both eras

    async def _request(self, http: HttpRequest, request: Request) -> None:
        try:
            meta = read_meta(request.params)
        except RpcError as error:
            raise Refusal(400, error, id=request.id) from error
        if http.version in _MODERN or (META_VERSION in meta and request.method != "initialize"):
            await self._modern(http, request, meta)
            return
        self._check_version(http, request.id)
        if request.method == "initialize":
            await self._initialize(http, request, meta)
            return
        session = self._living(http) or await self._session(http, request.id)
        self._sessions.use(session)
        if request.id in session.requests:
            raise Refusal(
                400, RpcError(INVALID_REQUEST, f"request {request.id!r} is still under way"), id=request.id
            )
        if len(session.requests) >= self._settings.max_concurrent_requests:
            raise Refusal(200, RpcError(BUSY, "too many requests under way"), id=request.id)
        exchange = self._exchange(http, request, meta, _with_values(session.peer.caller, http), session)
        session.requests[request.id] = exchange
        try:
            outcome = await self._settled(exchange, self._dispatcher.legacy(session.peer, exchange))
        finally:
            del session.requests[request.id]
            session.used_at = self._clock()
            if session.peer.changed:
                self._sessions.note(session)
        status, headers = self._challenged(http, outcome, 200)
        await exchange.answer(outcome, status, (session.header, *headers))

    async def _initialize(self, http: HttpRequest, request: Request, meta: Meta) -> None:
        """A session comes into being only with the successful answer."""
        if len(request.params.raw) > MAX_HANDSHAKE_BYTES:
            error = RpcError(INVALID_PARAMS, f"initialize: more than {MAX_HANDSHAKE_BYTES} bytes of params")
            raise Refusal(400, error, id=request.id)
        if known := session_id(http) is not None:
            session = self._living(http) or await self._session(http, request.id)
        else:
            session = Session(http.account, self._clock)
            session.peer.begin(agent=agent_header(http), title=title_header(http), target=target(http))
        http.reads = Accepts(json=True, events=False)  # a stream would need a session that may not come
        exchange = self._exchange(http, request, meta, _with_values(session.peer.caller, http), session)
        try:
            if not known:
                await self._sessions.make_room()
            outcome = await self._settled(exchange, self._dispatcher.legacy(session.peer, exchange))
            if not known and isinstance(outcome, Payload):
                self._sessions.add(session)
            elif session.peer.changed:
                self._sessions.note(session)
        except Busy as full:
            raise too_full(full, request.id) from full
        status, headers = self._challenged(http, outcome, 200)
        await exchange.answer(outcome, status, (session.header,) if isinstance(outcome, Payload) else headers)

    async def _modern(self, http: HttpRequest, request: Request, meta: Meta) -> None:
        if request.method == "subscriptions/listen" and not http.reads.events:
            raise Refusal(
                406, RpcError(INVALID_REQUEST, "Accept must allow text/event-stream"), id=request.id
            )
        if (error := repeated_header(http.scope["headers"])) is not None:
            raise Refusal(400, error, id=request.id)
        try:
            caller = open_envelope(
                request, meta, account=http.account, target=target(http), headers=http.headers
            )
            named = _one_session(http, meta)
            if named is not None:
                caller, meta = await self._attach(named, caller, meta)
            caller = _with_values(caller, http)
            exchange = self._exchange(http, request, meta, caller, None)
        except StoreError as failure:
            raise store_down(failure, request.id) from failure
        except Busy as full:
            raise too_full(full, request.id) from full
        except RpcError as error:
            raise Refusal(_MODERN_STATUS[error.rpc_code], error, id=request.id) from error
        settled = self._settled(exchange, self._dispatcher.modern(exchange))
        if request.method == "subscriptions/listen":
            settled = self._listening(http.account, settled)
        outcome = await settled
        if exchange.scope.cancelled_caught and exchange.given_up is None:
            raise Disconnected
        status = _MODERN_STATUS.get(outcome.rpc_code, 200) if isinstance(outcome, RpcError) else 200
        status, headers = self._challenged(http, outcome, status)
        await exchange.answer(outcome, status, headers)

    def _challenged(self, http: HttpRequest, outcome: Outcome, status: int) -> tuple[int, tuple[Header, ...]]:
        """`status`, or 401 with its header for an outcome that a client is to be challenged for."""
        if self._challenge is None or not isinstance(outcome, NeedsCredentials):
            return status, ()
        return 401, (self._challenge(http.scope, outcome),)

    async def _settled(self, exchange: HttpExchange, work: Awaitable[Outcome]) -> Outcome:
        self._under_way.add(exchange)
        try:
            return await exchange.settle(work, self._patience)
        finally:
            self._under_way.discard(exchange)

    async def _attach(self, named: object, caller: Caller, meta: Meta) -> tuple[Caller, Meta]:
        """A modern request on behalf of a legacy session, or of a thread.

        Raises `RpcError` (-32602) for one that there is not, `StoreError` and `Busy` as `Sessions.fetch`.
        """
        if isinstance(named, str):
            account = caller.account
            session = self._sessions.find(named, account)
            if session is None and await self._is_thread(named, account):
                return replace(caller, thread=named), {**meta, META_SESSION: named}
            session = session or await self._sessions.fetch(named, account)
            if session is not None:
                session.used_at = self._clock()
                self._sessions.use(session)
                rest = {name: value for name, value in meta.items() if name != META_SESSION}
                ours = session.peer.caller
                return replace(caller, session=session.id, agent=ours.agent, title=ours.title), rest
        raise RpcError(INVALID_PARAMS, "unknown session")

    async def _is_thread(self, named: str, account: str) -> bool:
        """Whether there is such a thread of `account`. That there is one counts for a moment: a client that
        names it names it with each request. Raises `StoreError`."""
        if self._has_thread is None:
            return False
        now, threads = self._clock(), self._threads
        if now - threads.get((account, named), -math.inf) <= FRESH_S:
            return True
        if not await self._has_thread(named, account):
            threads.pop((account, named), None)
            return False
        if len(threads) >= MAX_THREADS:
            threads.clear()
        threads[account, named] = now
        return True

    async def _listening(self, account: str, settled: Awaitable[Outcome]) -> Outcome:
        """Who listens is there as one with a session is: what it wants to hear of stays connected."""
        with attending(self._attendance, account):
            return await settled

    def _exchange(
        self, http: HttpRequest, request: Request, meta: Meta, caller: Caller, session: Session | None
    ) -> HttpExchange:
        return HttpExchange(
            http, request, meta, caller, session, side_tasks=self._side_tasks, clock=self._clock
        )

    def _living(self, http: HttpRequest) -> Session | None:
        """The session that a request names, if it can be used without asking the store."""
        named = session_id(http)
        return None if named is None else self._sessions.find(named, http.account)

    async def _session(self, http: HttpRequest, request: Id | None) -> Session:
        """The session that a request names, parked or not. One of another account does not exist."""
        named = session_id(http)
        if named is None:
            raise missing_session(request)
        try:
            session = await self._sessions.fetch(named, http.account)
        except Busy as full:
            raise too_full(full, request) from full
        except StoreError as failure:
            raise store_down(failure, request) from failure
        if session is None:
            raise unknown_session(request)
        return session

    def _check_version(self, http: HttpRequest, request: Id | None) -> None:
        version = http.version
        if version is not None and version not in _LEGACY:
            error = unsupported(version.decode("latin-1"), ALL_VERSIONS)
            raise Refusal(400, error, id=request)

    # What goes on beside the requests

    async def _sweep(self) -> None:
        while True:
            await anyio.sleep(SWEEP_S)
            await self._sessions.sweep()

    def _session_restored(self, session: Session) -> None:
        if session.peer.subscriptions or session.peer.asked_level:
            self._side_tasks.start_soon(lambda: self._dispatcher.recall(session.peer))

    def _session_parted(self, session: Session) -> None:
        if session.peer.subscriptions:
            self._side_tasks.start_soon(lambda: self._dispatcher.forget(session.peer))

    def _note_change(self, method: str, params: Payload, audience: Audience) -> None:
        try:
            key = change_key(method, params)
        except RpcError as malformed:
            log.debug("malformed notification dropped", extra={"method": method, "reason": str(malformed)})
            return
        if method not in CHANGES:  # each of these says something of its own
            if len(self._changes) >= MAX_NEWS:
                log.debug("news dropped: there is too much of it", extra={"method": method})
                return
            key = f"{method} {next(self._news)}"
        self._changes[key, audience] = (method, params)
        self._changed.set()

    async def _tell_changes(self) -> None:
        """Pass changes on to everybody who wants to hear of them, a few at a time."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            changes, self._changes = self._changes, {}
            for (key, audience), (method, params) in changes.items():
                self._dispatcher.listeners.tell(method, params, audience)
                message = encode_notification(method, params)
                for place, session in enumerate(self._sessions.reached(audience)):
                    stream = session.standalone
                    is_theirs = audience.includes(session.peer.caller)
                    if stream is not None and is_theirs and session.peer.wants(method, params):
                        stream.send(message, key if method in CHANGES else None)
                    if place % FAN_OUT == FAN_OUT - 1:
                        await anyio.lowlevel.checkpoint()


def _one_session(http: HttpRequest, meta: Meta) -> object:
    """The session or thread that a modern request names, in whichever places; None if it names none.

    Raises `RpcError` (-32020) for one that names two: only one of them could be meant.
    """
    named = session_names(http)
    if (inside := meta.get(META_SESSION)) is not None:
        named.append(("params._meta", inside))
    if not named:
        return None
    (_, first), *others = named
    for place, other in others:
        if str(other).lower() != str(first).lower():
            raise RpcError(HEADER_MISMATCH, f"{named[0][0]} and {place} name different sessions")
    return first


def _with_values(caller: Caller, http: HttpRequest) -> Caller:
    """`caller` with what this one request brought along: those of one session may bring different tokens."""
    return caller if http.values is None else replace(caller, values=http.values)
