"""One connection to an MCP server: made when first needed, and again whenever it was lost.

A single owner task (`Upstream.run`) makes and keeps the connection; callers wait for its current attempt and
never make one of their own, so a hundred of them cost one handshake, and a server that is down costs them
nothing: they are told at once why the last attempt failed.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import TaskStatus

from nanobot.addresses import PUBLIC_ONLY
from nanobot.aio import task_group
from nanobot.config.model import McpServer
from nanobot.errors import (
    ConfigError,
    CredentialsRefused,
    NanobotError,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from nanobot.http import Http
from nanobot.narrow import object_of
from nanobot.upstream.access import Access
from nanobot.upstream.definition import Remote
from nanobot.upstream.era_memory import EraMemory, Eras
from nanobot.upstream.inputs import completed
from nanobot.upstream.launcher import Launcher
from nanobot.upstream.oauth.client import OAuthClient
from nanobot.upstream.oauth.exchange import TokenExchange
from nanobot.upstream.oauth.failures import AuthorizationFailed, LoginNeeded
from nanobot.upstream.pages import read_pages, without_broken_marks
from nanobot.upstream.pauses import BACKOFF_S, Pauses
from nanobot.upstream.personal import PersonalHeaders, PersonalHttp
from nanobot.upstream.process import StartFailed
from nanobot.upstream.secrecy import Secrecy
from nanobot.upstream.state import State, UpstreamState
from nanobot.upstream.subscriptions import Subscriptions
from nanobot.upstream.tasks import TaskCalls, task_calls
from nanobot.upstream.told_level import ToldLevel
from nanobot.watchers import Watchers
from nanobot.wire.call import NOBODY, Call, Caller
from nanobot.wire.carrier import Carrier
from nanobot.wire.client import (
    Checkpoint,
    Connected,
    Connection,
    ConnectionLost,
    Denied,
    Heard,
    Hello,
    NoAnswer,
    NoCommonVersion,
)
from nanobot.wire.client_duplex import open_duplex
from nanobot.wire.client_http import HttpConnection
from nanobot.wire.client_sse import open_remote
from nanobot.wire.continuation import Continuation
from nanobot.wire.extensions import SHOWS_APPS
from nanobot.wire.following import Following
from nanobot.wire.http_reply import Refused, Unauthorized
from nanobot.wire.notifications import (
    ACKNOWLEDGED,
    LOG_MESSAGE,
    PREFIX,
    PROMPTS_CHANGED,
    RESOURCE_UPDATED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
)
from nanobot.wire.rpc import EMPTY, INVALID_PARAMS, METHOD_NOT_FOUND, Payload, RpcError
from nanobot.wire.source import Entry, Kind
from nanobot.wire.versions import Era

log = logging.getLogger(__name__)

FAREWELL_S: Final = 5.0
"""How long a server may take to acknowledge that it need tell no more of a resource."""
REPEATABLE: Final = frozenset(
    {
        "ping",
        "tools/list",
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "resources/templates/list",
        "completion/complete",
        "tasks/get",
        "tasks/result",
        "tasks/cancel",
    }
)
"""Requests that change nothing: sent once more when their connection is lost. `tools/call` never is."""

CAPABILITIES: Final[Mapping[str, Any]] = {
    "roots": {"listChanged": True},
    "sampling": {"tools": {}},
    "elicitation": {"form": {}, "url": {}},
}

_CHANGED: Final[Mapping[str, tuple[Kind, ...]]] = {
    TOOLS_CHANGED: ("tools",),
    PROMPTS_CHANGED: ("prompts",),
    RESOURCES_CHANGED: ("resources", "templates"),
}
_ALL_KINDS: Final[tuple[Kind, ...]] = ("tools", "prompts", "resources", "templates")


class Upstream:
    """One configured server as `account` uses it. Used by many tasks at once.

    `env` is what `${NAME}` is looked up in. Nothing is started before somebody asks for something.
    `last_era` is what the server spoke to others, else `eras` is asked; `continuation` is the session at a
    remote one to go on with.
    Without a `launcher` only what is not to be confined can be started, without `oauth` nobody can log in.
    Handshakes and pings pass `checkpoint`; a server that it denies is not asked again.
    `shows_apps`: people here see the user interfaces that tools come with.
    """

    def __init__(
        self,
        server: McpServer,
        *,
        http: Http,
        env: Mapping[str, str],
        version: str,
        account: str = "",
        last_era: Era | None = None,
        eras: Eras | None = None,
        continuation: Continuation | None = None,
        launcher: Launcher | None = None,
        oauth: OAuthClient | None = None,
        exchange: TokenExchange | None = None,
        checkpoint: Checkpoint | None = None,
        backoff_s: Sequence[float] = BACKOFF_S,
        now: Callable[[], float] = time.time,
        shows_apps: bool = False,
    ) -> None:
        self.state = UpstreamState(name=server.name, kind="http" if server.url else "stdio", since=now())
        self._server = server
        self._http = http if server.is_trusted else http.guarded(PUBLIC_ONLY)
        self._env = env
        self._launcher = launcher or Launcher(sandbox=None, home=Path(os.devnull))
        self._secrecy = Secrecy(self._launcher.recent)
        offered = CAPABILITIES
        if server.sampling == "off":
            offered = {name: value for name, value in offered.items() if name != "sampling"}
        if shows_apps:
            offered = {**offered, "extensions": SHOWS_APPS}
        self._hello = Hello(
            version=version,
            capabilities=offered,
            protocol=server.protocol,
            last_era=last_era,
            called=server.name,
            checkpoint=checkpoint,
            discretion=self._secrecy,
        )
        self._era_memory = EraMemory(server, eras)
        self._backoff_s = backoff_s
        self._now = now
        self._limit_s = server.timeout_ms / 1000 if server.timeout_ms else math.inf
        self._answer_s = min(self._limit_s, server.tool_timeout_s)
        self._account = account
        self._personal = PersonalHeaders.of(server, env, exchange, self._launcher.recent)
        self._access = Access.of(server, oauth, self._try_again, account=account)
        self._login: LoginNeeded | None = None
        self._attempt_scope: anyio.CancelScope | None = None
        self._continuation = continuation
        self._live: Connection | None = None
        self._task_calls: TaskCalls | None = None
        self._failure: str | None = None
        self._refusal: Refused | None = None  # of the last attempt, for what a caller had brought along
        self._next_attempt = math.inf
        self._wanted = anyio.Event()
        self._hurry = anyio.Event()  # the pause before the next attempt is over
        self._settled = anyio.Event()  # the current attempt has succeeded or failed
        self._connections = 0
        self._watchers = Watchers[Kind]()
        self._listeners = Watchers[str, Payload]()
        self._subscriptions = Subscriptions(self._follow, self._unfollow)
        self._following: Following | None = None
        self._own: dict[str, Callable[[Payload], Awaitable[None]]] = {
            "resources/subscribe": lambda params: self._subscriptions.add(_uri(params)),
            "resources/unsubscribe": lambda params: self._subscriptions.remove(_uri(params)),
        }
        self.level = ToldLevel(server.name, self._secrecy.hide)

    @property
    def name(self) -> str:
        return self._server.name

    # For callers

    async def ready(self, caller: Caller = NOBODY) -> Connected:
        """What the server says of itself, once it is connected. Raises `UpstreamUnavailable`."""
        with self._discreetly():
            if self._personal is not None:
                await self._headers_of(caller, self._personal)
            return await self._introduced()

    async def _introduced(self) -> Connected:
        try:
            return (await self._connection()).connected
        except LoginNeeded as e:
            assert self._access is not None
            raise self._access.required(e) from e

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        """The result of the server's own method, as `Source` promises.

        A call that may have been executed is never sent again.
        """
        with self._discreetly():
            return await self._request(method, params, call)

    async def _request(self, method: str, params: Payload, call: Call) -> Payload:
        if self._personal is not None:
            call = replace(call, to_server=await self._headers_of(call.caller, self._personal))
        if method in self._own:
            await self._own[method](params)
            return EMPTY
        if method.startswith(PREFIX):
            await self._notify(method, params)
            return EMPTY
        is_call = method == "tools/call"
        timeout_s = self._server.tool_timeout_s if is_call or math.isinf(self._limit_s) else self._limit_s

        async def send(params: Payload) -> Payload:
            result = await self._send(method, params, call, timeout_s)
            if is_call and self._task_calls is not None:
                return await self._task_calls.finished(result, call, timeout_s)
            return result

        result = await send(params)
        if call.caller.era == "legacy":
            return await completed(result, params, call, send)
        return result

    async def _notify(self, method: str, params: Payload) -> None:
        """Tell a legacy server, if it is connected; a modern one hears nothing but requests."""
        connection = self._live
        if connection is None or connection.connected.era == "modern":
            return
        try:
            await connection.notify(method, params)
        except ConnectionLost as e:
            log.debug("not told", extra={"server": self.name, "method": method, "reason": e.reason})

    async def listing(self, kind: Kind, caller: Caller = NOBODY) -> Sequence[Entry]:
        """Everything the server lists for `caller`, read now and to the last page."""
        with self._discreetly():
            return await self._listing(kind, caller)

    async def _listing(self, kind: Kind, caller: Caller) -> Sequence[Entry]:
        connected = await self.ready(caller)
        call = Call()
        if self._personal is not None:
            call.to_server = await self._headers_of(caller, self._personal)
        entries = await self._read(kind, connected, call)
        if kind == "tools" and self._task_calls is not None:
            entries = self._task_calls.listed(entries)
        if kind == "tools" and connected.era == "modern" and self.state.kind == "http":
            return without_broken_marks(self.name, entries)
        return entries

    async def _read(self, kind: Kind, connected: Connected, call: Call) -> Sequence[Entry]:
        async def ask(method: str, params: Payload) -> Payload:
            return await self._send(method, params, call, self._answer_s)

        return await read_pages(self.name, kind, connected.capabilities, ask)

    def watch(self, changed: Callable[[Kind], None]) -> Callable[[], None]:
        """Be told which lists changed; all of them when the server came back after an absence."""
        return self._watchers.add(changed)

    def hear(self, heard: Heard) -> Callable[[], None]:
        """Be told what the server says on its own and that changes no list."""
        return self._listeners.add(heard)

    @property
    def is_followed(self) -> bool:
        """Whether somebody waits to be told of its resources."""
        return len(self._subscriptions) > 0

    def continuation(self) -> Continuation | None:
        """What it takes to go on with the session at a remote server later; None where there is none."""
        if self._continuation is not None:
            return self._continuation  # nobody has needed it yet
        return self._live.continuation if isinstance(self._live, HttpConnection) else None

    def keep_session(self) -> None:
        """Leave the session at a remote server as it is when the connection is closed."""
        if isinstance(self._live, HttpConnection):
            self._live.keeps_session = True

    async def _headers_of(self, caller: Caller, personal: PersonalHeaders) -> Mapping[str, str]:
        """The headers of a request of `caller`. A server that refused others is asked again at once, but once
        for the same ones; one that is down is not."""
        headers = await personal.made_for(caller)
        if self._refusal is not None and self.state.state == "backoff" and personal.tried.note(headers):
            self._failure = None
            self._unsettle()
            self._hurry.set()
        return headers

    async def _send(self, method: str, params: Payload, call: Call, timeout_s: float) -> Payload:
        may_repeat = True
        logins: dict[str, int] = {}
        while True:
            try:
                connection = await self._connection()
                if method == "tools/call" and self._task_calls is not None:
                    params = await self._task_calls.prepared(params, call)
                return await connection.request(method, params, call, timeout_s=timeout_s)
            except NoAnswer as e:
                raise UpstreamTimeout(self.name, e.timeout_s) from e
            except LoginNeeded as e:
                logins[e.why] = logins.get(e.why, 0) + 1
                await self._log_in(e, call, logins[e.why])
            except ConnectionLost as e:
                if isinstance(e, Unauthorized) and self._access is not None and self._access.demand():
                    self._connect_anew()
                    continue
                unsafe = e.maybe_sent and method not in REPEATABLE
                if unsafe or not may_repeat or isinstance(e, Refused | AuthorizationFailed):
                    raise self._unavailable(e.reason, e, maybe_sent=e.maybe_sent) from e
                may_repeat = False

    async def _ask(self, method: str, params: Payload, call: Call) -> Payload:
        """A request that belongs to another one, whose caller is known and whose time runs elsewhere."""
        return await self._send(method, params, call, self._server.tool_timeout_s)

    async def _connection(self) -> Connection:
        while True:
            if self._live is not None:
                if self._live.is_alive:
                    return self._live
                self._unsettle()
            if self._login is not None:
                if self._login.flow is None or self._login.flow.is_open:
                    raise self._login
                self._try_again()  # the address that we have told leads nowhere by now
            if self._failure is not None:
                reason = self._failure + self._when()
                raise self._unavailable(reason, self._refusal)
            self._wanted.set()
            await self._settled.wait()

    def _unavailable(
        self, reason: str, refusal: Exception | None, *, maybe_sent: bool = False
    ) -> UpstreamUnavailable:
        """What callers are told; `refusal` is what the server said, if it said anything."""
        if isinstance(refusal, Unauthorized) and self._personal is not None:
            return CredentialsRefused(self.name, reason, scopes=refusal.scopes, maybe_sent=maybe_sent)
        for_caller = isinstance(refusal, Refused) and refusal.is_for_caller
        return UpstreamUnavailable(self.name, reason, maybe_sent=maybe_sent, for_caller=for_caller)

    async def _log_in(self, needed: LoginNeeded, call: Call, times: int) -> None:
        assert self._access is not None
        if self._live is not None and needed.why == "login":
            self._enter("auth_required", last_error=needed.reason, auth_url=_address(needed))
        await self._access.log_in(needed, call, times)

    def _try_again(self) -> None:
        """There is a token, or a reason to ask for another login: nobody need wait any more."""
        if self._login is not None:
            self._login = self._failure = None
            self._unsettle()
            if self._access is not None:
                self._access.wake()
        elif self._live is not None and self.state.state == "auth_required":
            self._enter("ready", last_error="", auth_url="")

    def _connect_anew(self) -> None:
        """Give up the connection we have; whoever wants one waits for the next."""
        self._unsettle()
        if self._attempt_scope is not None:
            self._attempt_scope.cancel()

    def _when(self) -> str:
        if math.isinf(self._next_attempt):
            return ""
        return f" (next attempt in {max(0.0, self._next_attempt - anyio.current_time()):.0f} s)"

    # The owner

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep the server connected from the first time that it is needed until this task is cancelled."""
        task_status.started()
        pauses = Pauses(self._backoff_s)
        try:
            await self._wanted.wait()
            self._secrecy.keep(self._launcher.check(self._server, self._env))
            if self._hello.last_era is None:
                self._hello = replace(self._hello, last_era=await self._era_memory.recall())
            while True:
                lived_s, reason = await self._attempt()
                if self._login is not None:
                    await self._await_login(self._login)
                    continue
                log.warning("no connection", extra={"server": self.name, "reason": reason})
                if pause_s := pauses.after(lived_s):
                    self._fail("backoff", reason, pause_s)
                    self._hurry = anyio.Event()
                    with anyio.move_on_after(pause_s):
                        await self._hurry.wait()
        except (ConfigError, Denied) as e:  # nothing that time could mend
            reason = self._secrecy.hide(str(e))
            log.warning("server not usable", extra={"server": self.name, "reason": reason})
            self._fail("failed", reason)
            await anyio.sleep_forever()
        finally:
            self._fail("idle", "it was stopped")
            if self._access is not None:
                self._access.close()

    async def _attempt(self) -> tuple[float | None, str]:
        """Connect and stay connected: for how many seconds (None: never was), and why it ended."""
        self._unsettle()
        self._failure = None
        self._refusal = None
        if self._personal is not None:
            self._personal.tried.note(self._personal.latest)
        self._enter("starting")
        ready_at: float | None = None
        reason = ""
        try:
            image = await self._launcher.prepare(self._server, self._env)
            with anyio.CancelScope(deadline=anyio.current_time() + self._limit_s) as scope:
                self._attempt_scope = scope
                async with self._opened(image) as connection:
                    scope.deadline = math.inf  # the limit was for getting here
                    ready_at = anyio.current_time()
                    reason = await self._stay(connection)
            if scope.cancelled_caught and ready_at is not None:
                reason = "it wants a login now"
            elif scope.cancelled_caught:
                reason = f"it did not answer within {self._limit_s:g} s of its start (timeoutMs)"
        except LoginNeeded as e:
            self._login = e
        except (StartFailed, ConnectionLost, NoCommonVersion) as e:
            reason = str(e)
            self._refusal = e if isinstance(e, Refused) and e.is_for_caller else None
            self._forget_era()
        except RpcError as e:
            self._forget_era()
            reason = f"it refused the handshake: {e}"
        except Denied as e:
            if e.is_final:
                raise
            reason = str(e)
        except Exception as e:  # boundary: one server must not end the others
            self._secrecy.hide_in(e)
            log.exception("connection ended by a fault", extra={"server": self.name})
            reason = f"an internal fault ({type(e).__name__}); the log has the details"
        lived_s = None if ready_at is None else anyio.current_time() - ready_at
        return lived_s, self._secrecy.hide(reason)

    def _forget_era(self) -> None:
        """The server may have become another one: the next attempt finds out anew."""
        self._hello = replace(self._hello, last_era=None)

    async def _stay(self, connection: Connection) -> str:
        """Be connected until the connection is lost; says why it was."""
        async with task_group() as group:
            is_modern = connection.connected.era == "modern"
            self._following = (
                Following(connection, self._heard, group, hide=self._secrecy.hide) if is_modern else None
            )
            self.level.forget()
            await self.level.tell(connection)  # before anybody can ask it for anything
            was_known = self._hello.last_era == connection.connected.era
            self._adopt(connection)
            if not was_known:
                group.start_soon(self._era_memory.note, connection.connected.era)
            group.start_soon(self._remind, connection)
            reason = await connection.lost()
            group.cancel_scope.cancel()
        return reason

    @asynccontextmanager
    async def _opened(self, image: str) -> AsyncGenerator[Connection]:
        async with self._launcher.opened(
            self._server, self._env, self._http, image, account=self._account
        ) as target:
            if isinstance(target, Remote):
                async with AsyncExitStack() as stack:
                    yield await self._reach(target, stack)
            else:
                async with open_duplex(
                    target, self._hello, self._heard, explain=target.explain
                ) as connection:
                    yield connection

    async def _reach(self, target: Remote, stack: AsyncExitStack) -> Connection:
        """A connection that `stack` closes; with a token if the server wants one."""

        async def reach(carrier: Carrier) -> Connection:
            return await stack.enter_async_context(
                open_remote(
                    carrier,
                    target.url,
                    self._hello,
                    self._heard,
                    headers=target.headers,
                    # One line for all could not carry headers of their own.
                    transport="streamableHttp" if self._personal is not None else self._server.transport,
                    continuation=self._continuation,
                )
            )

        access, http = self._access, self._http
        if self._personal is not None:
            http = PersonalHttp(http, self._personal)
        if access is None:
            return await reach(http)
        try:
            return await reach(await access.carrier(http, target.url))
        except Unauthorized:
            if not access.demand():
                raise
            return await reach(await access.carrier(http, target.url))

    async def _await_login(self, needed: LoginNeeded) -> None:
        assert self._access is not None
        log.warning("a login is needed: nanobot mcp login %s", self.name)
        self._fail("auth_required", needed.reason, auth_url=_address(needed))
        while self._login is not None:
            await self._access.news()

    def _adopt(self, connection: Connection) -> None:
        connected = connection.connected
        is_return = self._connections > 0 or self.state.last_error != ""
        self._live = connection
        self._task_calls = task_calls(
            self.name, connected, self._ask, partial(self._read, "tools", connected)
        )
        self._continuation = None
        if self._personal is not None:
            self._personal.tried.clear()
        self._hello = replace(self._hello, last_era=connected.era)
        self._enter(
            "ready",
            era=connected.era,
            protocol_version=connected.version,
            server_info=self._secrecy.hide_in_json(Payload.of(connected.server_info)).object(),
            last_error="",
            auth_url="",
            restarts=self._connections,
        )
        self._connections += 1
        self._settled.set()
        if is_return:
            self._tell_watchers(_ALL_KINDS)

    def _fail(self, state: State, reason: str, pause_s: float = math.inf, *, auth_url: str = "") -> None:
        self._unsettle()
        self._failure = reason
        self._next_attempt = anyio.current_time() + pause_s
        self._enter(state, last_error=reason, auth_url=auth_url)
        self._settled.set()

    def _unsettle(self) -> None:
        """From here until the attempt is over, callers wait."""
        self._live = None
        if self._settled.is_set():
            self._settled = anyio.Event()

    def _enter(self, state: State, **facts: Any) -> None:
        self.state = replace(self.state, state=state, since=self._now(), **facts)

    # What the server is to tell

    async def _follow(self, uri: str) -> None:
        """Have the server tell of changes of `uri`. Raises `RpcError` if it does not do that."""
        connected = await self._introduced()
        if connected.era == "legacy":
            if not object_of(connected.capabilities.get("resources")).get("subscribe"):
                raise self._silent(uri)
            await self._send("resources/subscribe", Payload.of({"uri": uri}), Call(), self._answer_s)
        elif uri not in await self._agreed():
            raise self._silent(uri)

    async def tell_log_level(self) -> None:
        """Have the server log as much as is wanted: now if it is connected, otherwise as soon as it is."""
        if self._live is not None:
            await self.level.tell(self._live)

    @property
    def is_to_be_told_level(self) -> bool:
        """Whether the server, being connected, logs otherwise than is wanted, for those who said so."""
        return self.level.is_due(self._live)

    async def _unfollow(self, uri: str) -> None:
        """What the server says to this is of no consequence: nobody listens any more."""
        connection = self._live
        if connection is None:
            return
        try:
            if connection.connected.era == "modern":
                await self._agreed()
            else:
                params = Payload.of({"uri": uri})
                await connection.request(
                    "resources/unsubscribe", params, Call(), timeout_s=min(self._answer_s, FAREWELL_S)
                )
        except (RpcError, UpstreamUnavailable, ConnectionLost, NoAnswer) as e:
            log.debug("not unsubscribed", extra={"server": self.name, "reason": self._secrecy.hide(str(e))})

    async def _agreed(self) -> frozenset[str]:
        if self._following is None:
            raise UpstreamUnavailable(self.name, "the connection ended")
        try:
            return await self._following.agree(self._subscriptions.uris)
        except ConnectionLost as e:
            raise UpstreamUnavailable(self.name, e.reason, maybe_sent=e.maybe_sent) from e

    def _silent(self, uri: str) -> RpcError:
        return RpcError(METHOD_NOT_FOUND, f"MCP server {self.name!r} does not tell of changes of {uri!r}")

    async def _remind(self, connection: Connection) -> None:
        """Ask for what the server was to tell before it forgot us, now and whenever it does so again.

        What happened meanwhile went unheard, so each resource is supposed to have changed.
        """
        while True:
            for uri in sorted(self._subscriptions.uris()):
                try:
                    await self._follow(uri)
                except (RpcError, UpstreamError) as e:
                    reason = self._secrecy.hide(str(e))
                    log.warning(
                        "not subscribed again", extra={"server": self.name, "uri": uri, "reason": reason}
                    )
                else:
                    self._heard(RESOURCE_UPDATED, Payload.of({"uri": uri}))
            await connection.renewed()
            self.level.forget()
            await self.tell_log_level()

    # What the server says of itself

    def _heard(self, method: str, params: Payload) -> None:
        if (kinds := _CHANGED.get(method)) is not None:
            self._tell_watchers(kinds)
        elif method == ACKNOWLEDGED:
            self._tell_watchers(_ALL_KINDS)  # whatever changed before the subscription went unheard
        else:
            self._listeners.tell(method, params)
        if method == LOG_MESSAGE and log.isEnabledFor(logging.DEBUG):
            entry = params.raw.decode("utf-8", "replace")
            log.debug("mcp log", extra={"server": self.name, "entry": entry[:1024]})

    @contextmanager
    def _discreetly(self) -> Generator[None]:
        """What the server sent on to others of what it was sent does not leave the block in an error."""
        try:
            yield
        except NanobotError as e:
            self._secrecy.hide_in(e)
            raise

    def _tell_watchers(self, kinds: Sequence[Kind]) -> None:
        for kind in kinds:
            self._watchers.tell(kind)


def _uri(params: Payload) -> str:
    uri = params.object().get("uri")
    if not isinstance(uri, str):
        raise RpcError(INVALID_PARAMS, "a subscription needs a uri (a string)")
    return uri


def _address(needed: LoginNeeded) -> str:
    """What a person opens to log in; "" if no login can be completed in this process."""
    return needed.flow.url if needed.flow is not None else ""
