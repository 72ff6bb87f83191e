"""The connections to one server: who shares which, when each is opened, and when it is closed again.

A connection belongs to a session (or to a conversation of ours), to an account, or to everybody, as the
server's `sharing` says. It is opened by the first request that needs it; whoever comes meanwhile waits for
the same one. Lists are read through any connection of the account; one that was opened only for that is given
to the first session that needs one, so that a person alone with us has one process of a server, not two.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup, TaskStatus

from nanobot.aio import task_group
from nanobot.config.model import McpServer
from nanobot.errors import Busy
from nanobot.upstream.connection import Upstream
from nanobot.upstream.log_levels import LogLevels
from nanobot.upstream.state import UpstreamState
from nanobot.watchers import Watchers
from nanobot.wire.call import EVERYBODY, NOBODY, Audience, Call, Caller
from nanobot.wire.client import Connected
from nanobot.wire.continuation import Continuation
from nanobot.wire.extensions import shows_apps
from nanobot.wire.notifications import PREFIX
from nanobot.wire.peer import LEVELS
from nanobot.wire.rpc import EMPTY, INVALID_PARAMS, Payload, RpcError
from nanobot.wire.source import Changed, Entry, Kind, Told
from nanobot.wire.versions import Era

SWEEP_S: Final = 15.0
"""How often we look for connections that nobody needs any more; more often where they are kept for less."""

WITHDRAWALS: Final = frozenset({"resources/unsubscribe"})
"""Requests for less than there was: no reason to connect."""

_KINDS: Final[tuple[Kind, ...]] = ("tools", "prompts", "resources", "templates")
_USEFUL: Final = ("ready", "starting", "auth_required", "backoff", "failed", "idle")
"""States, the one that says most of a server with several connections first."""


Connect = Callable[[str, Era | None, Continuation | None, bool], Upstream]
"""Makes a connection for an account to a server that spoke this era before, to go on with a session there; at
last, whether it is for somebody who can see the user interfaces of tools."""


class Holds(Protocol):
    """Knows the sessions whose clients are still there."""

    def is_open(self, account: str, session: str | None) -> bool:
        """Whether the session is; None: whether the account has any."""
        ...


@dataclass(slots=True, eq=False)
class Member:
    """One connection. `session` is None while it was opened for lists alone, and "" where there are none."""

    upstream: Upstream
    account: str
    session: str | None
    used_at: float
    with_apps: bool = False
    busy: int = 0
    has_ended: bool = False
    """Its session has; it is closed when what runs on it is done."""
    goes_on: bool = False
    """Its session at a remote server is left as it is then."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    @property
    def is_ready(self) -> bool:
        return self.upstream.state.state == "ready"


@dataclass(slots=True, eq=False)
class _Account:
    """The connections of one account, by session; `spare` has none yet. `reader` reads the lists."""

    members: dict[str, Member] = field(default_factory=dict[str, Member])
    spare: Member | None = None
    reader: Member | None = None

    def all(self) -> list[Member]:
        return [*self.members.values(), *((self.spare,) if self.spare is not None else ())]


class Pool:
    """All connections to one server; satisfies `wire.source.Source`. `run` owns them."""

    def __init__(
        self,
        server: McpServer,
        connect: Connect,
        *,
        holds: Holds,
        idle_s: float,
        most: int,
        shows_apps: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`connect` makes a connection for an account; there are at most `most` at once. One that is not held
        and not used for `idle_s` seconds is closed; one that everybody shares never is. `shows_apps`: whoever
        asks sees the user interfaces of tools."""
        self._server = server
        self._connect = connect
        self._holds = holds
        self._idle_s = idle_s
        self._most = most
        self._page_shows_apps = shows_apps
        self._clock = clock
        self._accounts: dict[str, _Account] = {}
        self._count = 0
        """Connections that are open or being closed."""
        self._room = anyio.Event()
        self._restarts = 0
        """Of connections that are no more."""
        self._last = connect("", None, None, False).state
        self._continuations: dict[tuple[str, str], Continuation] = {}
        self._watchers = Watchers[Kind, str]()
        self._listeners = Watchers[str, Payload, Audience]()
        self._levels = LogLevels()
        self._group: TaskGroup | None = None

    @property
    def name(self) -> str:
        return self._server.name

    @property
    def is_personal(self) -> bool:
        """Whether accounts have connections of their own, and so may be shown different things."""
        return self._server.sharing != "global"

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the connections until cancelled; then all are closed at the same time."""
        async with task_group() as group:
            self._group = group
            task_status.started()
            try:
                while True:
                    await anyio.sleep(min(SWEEP_S, self._idle_s / 4))
                    self.sweep()
            finally:
                self._group = None

    # For callers

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        """As `Source`; also raises `Busy` if there can be no further connection now."""
        if method == "logging/setLevel":
            await self._set_log_level(_level(params), call)
            return EMPTY
        account, session = self._scope(call)
        known = self._accounts.get(account)
        member = known.members.get(session) if known is not None else None
        is_new = member is None
        if member is None:
            if method in WITHDRAWALS or method.startswith(PREFIX):
                return EMPTY  # the connection it was about is closed, or was never there
            member = await self._claim(account, session, self._shows_apps(call.caller))
        member.busy += 1  # as `_using` does, without its costs; before any wait, or it could be closed
        try:
            if is_new:
                member.upstream.level.wanted = self._levels.least((account, session))
                await member.upstream.tell_log_level()
            if call.log_level is not None and call.caller.era == "modern":
                return await self._heard_at(call.log_level, member, method, params, call)
            return await member.upstream.request(method, params, call)
        finally:
            self._release(member)

    async def listing(self, kind: Kind, caller: Caller = NOBODY) -> Sequence[Entry]:
        with self._using(await self._reader(caller, kind)) as upstream:
            return await upstream.listing(kind, caller)

    async def ready(self, caller: Caller) -> Connected:
        """What the server says of itself to the account of `caller`. Raises `UpstreamUnavailable`, `Busy`."""
        with self._using(await self._reader(caller)) as upstream:
            return await upstream.ready(caller)

    def watch(self, changed: Changed) -> Callable[[], None]:
        """Be told which lists of which account changed; also when something may have changed unheard."""
        return self._watchers.add(changed)

    def hear(self, told: Told) -> Callable[[], None]:
        """Be told what the server says on its own, to those who share the connection on which it did."""
        return self._listeners.add(told)

    def begin(self, account: str, session: str) -> None:
        """The session is there, perhaps again: what still runs for it is not the last that does."""
        if (member := self._of(account, session)) is not None:
            member.has_ended = member.goes_on = False

    def end(self, account: str, session: str, *, is_over: bool = True) -> None:
        """The session is over: its connection is closed as soon as nothing runs on it.

        With `is_over` False it will go on, here or in another process: its session at a remote server is left
        as it is, to be continued.
        """
        self._continuations.pop((account, session), None)
        if (shared := self._levels.forget((account, session))) is not None:
            known = self._accounts.get(shared[0])
            if known is not None and (other := known.members.get(shared[1])) is not None:
                self._adjust_level(other.upstream, shared)
        if (member := self._of(account, session)) is not None:
            member.has_ended, member.goes_on = True, not is_over
            self._close_if_over(member)

    def continuation(self, account: str, session: str) -> Continuation | None:
        """What it takes to go on later with the session at a remote server; None where there is nothing."""
        member = self._of(account, session)
        return member.upstream.continuation() if member is not None else None

    def continue_with(self, account: str, session: str, continuation: Continuation) -> None:
        """Have the connection of a session, when it is opened, go on where an earlier one stopped."""
        if self._server.sharing == "session" and self._of(account, session) is None:
            self._continuations[account, session] = continuation

    def _of(self, account: str, session: str) -> Member | None:
        """The connection that the session has for itself."""
        known = self._accounts.get(account) if self._server.sharing == "session" else None
        return known.members.get(session) if known is not None else None

    def state(self, account: str | None = None) -> UpstreamState:
        """What is known of the server: of the connections of `account`, or if it has none or is None, of all.

        Of several, that of the one which says most. Where a login is waited for is told to its account only.
        """
        everybody = list(self._members())
        own = [member for member in everybody if account is not None and member.account == account]
        states = [member.upstream.state for member in own or everybody]
        restarts = self._restarts + sum(member.upstream.state.restarts for member in everybody)
        if not states:
            return replace(self._last, state="idle", connections=0, restarts=restarts, auth_url="")
        best = min(states, key=lambda state: _USEFUL.index(state.state))
        auth_url = best.auth_url if account is None or own else ""
        return replace(best, connections=len(everybody), restarts=restarts, auth_url=auth_url)

    def sweep(self) -> None:
        """Close what nobody has needed for too long."""
        now = self._clock()
        for member in tuple(self._members()):
            if now - member.used_at >= self._idle_s and self._is_dispensable(member):
                self._close(member)

    # How much they log

    async def _set_log_level(self, level: str, call: Call) -> None:
        """Note what a client wants to hear, and tell the server if the client has a connection to it."""
        account, session = self._scope(call)
        caller = call.caller
        self._levels.want((caller.account, caller.session or ""), (account, session), level)
        known = self._accounts.get(account)
        member = known.members.get(session) if known is not None else None
        if member is not None:
            member.upstream.level.wanted = self._levels.least((account, session))
            await member.upstream.tell_log_level()

    async def _heard_at(
        self, level: str, member: Member, method: str, params: Payload, call: Call
    ) -> Payload:
        """Pass on a request of a modern client; the level that it names counts until the answer."""
        asking, connection, upstream = object(), self._scope(call), member.upstream
        self._levels.want(asking, connection, level)
        try:
            upstream.level.wanted = self._levels.least(connection)
            await upstream.tell_log_level()
            return await upstream.request(method, params, call)
        finally:
            self._levels.forget(asking)
            self._adjust_level(upstream, connection)

    def _adjust_level(self, upstream: Upstream, connection: tuple[str, str]) -> None:
        """Somebody wants no more of the log: have the server told in passing what the others want."""
        upstream.level.wanted = self._levels.least(connection)
        if self._group is not None and upstream.is_to_be_told_level:
            self._group.start_soon(upstream.tell_log_level)

    # Which connection

    def _scope(self, call: Call) -> tuple[str, str]:
        caller = call.caller
        match self._server.sharing:
            case "session":
                return caller.account, caller.session or (f"thread {call.thread}" if call.thread else "")
            case "account":
                return caller.account, ""
            case "global":
                return "", ""

    def _shows_apps(self, caller: Caller) -> bool:
        """Whether a connection of `caller` is for somebody who sees apps; one for several people promises
        what our own page can do and no more."""
        return self._page_shows_apps or (self._server.sharing == "session" and shows_apps(caller))

    def _account(self, caller: Caller) -> str:
        return caller.account if self.is_personal else ""

    async def _claim(self, account: str, session: str, with_apps: bool) -> Member:
        """The connection of a session that has none yet, unless somebody else was faster."""
        while True:
            known = self._accounts.get(account)
            if known is not None:
                if (member := known.members.get(session)) is not None:
                    return member
                goes_on = (account, session) in self._continuations  # then it needs a connection of its own
                member = known.spare
                if member is not None and not goes_on and member.with_apps == with_apps:
                    known.spare, member.session = None, session
                    known.members[session] = member
                    return member
            if self._count < self._most:
                return self._open(account, session, with_apps)
            await self._make_room()

    async def _reader(self, caller: Caller, kind: Kind | None = None) -> Member:
        """A connection to read lists of `caller`'s account through: one that works, or else a new one."""
        account = self._account(caller)
        while True:
            known = self._accounts.get(account)
            if known is not None:
                reader = known.reader
                if reader is None or not reader.is_ready:
                    reader = max(known.all(), key=lambda member: (member.is_ready, member.used_at))
                    known.reader = reader
                return reader
            if self._count < self._most:
                return self._open(account, None, self._shows_apps(caller), listing=kind)
            await self._make_room()

    # Opening and closing

    def _open(
        self, account: str, session: str | None, with_apps: bool, *, listing: Kind | None = None
    ) -> Member:
        """`listing`: what it is opened to list, if that is its purpose."""
        if self._group is None:
            raise RuntimeError("nothing can be connected: Pool.run is not running")
        continuation = self._continuations.pop((account, session or ""), None)
        upstream = self._connect(account, self._era(), continuation, with_apps)
        member = Member(upstream, account, session, self._clock(), with_apps)
        known = self._accounts.get(account)
        is_back = known is None
        if known is None:
            known = self._accounts[account] = _Account()
        if session is None:
            known.spare = member
        else:
            known.members[session] = member
        self._count += 1
        member.upstream.watch(functools.partial(self._heard, member))
        member.upstream.hear(functools.partial(self._pass_on, member))
        self._group.start_soon(self._keep, member)
        if is_back:  # nobody has listened for this account meanwhile
            self._tell(account, [kind for kind in _KINDS if kind != listing])
        return member

    def _era(self) -> Era | None:
        """What the server spoke the last time."""
        for member in self._members():
            if member.is_ready:
                return member.upstream.state.era
        return self._last.era

    async def _keep(self, member: Member) -> None:
        try:
            with member.scope:
                await member.upstream.run()
        finally:
            self._count -= 1
            self._room.set()
            self._room = anyio.Event()

    async def _make_room(self) -> None:
        """Close the connection that was idle for longest, and wait until one is gone. Raises `Busy`."""
        members = list(self._members())
        idle = [member for member in members if self._is_dispensable(member)]
        if not idle and len(members) == self._count:
            raise Busy(
                f"All {self._count} connections that MCP server {self.name!r} may have are in use; try again "
                f"later, or raise mcpServers.{self.name}.maxConnections."
            )
        room = self._room
        if len(members) == self._count:
            self._close(min(idle, key=lambda member: member.used_at))
        await room.wait()

    def _is_dispensable(self, member: Member) -> bool:
        if member.busy or member.upstream.is_followed or not self.is_personal:
            return False
        return not self._holds.is_open(member.account, member.session or None)

    @contextmanager
    def _using(self, member: Member) -> Generator[Upstream]:
        member.busy += 1
        try:
            yield member.upstream
        finally:
            self._release(member)

    def _release(self, member: Member) -> None:
        member.busy -= 1
        member.used_at = self._clock()
        if member.has_ended:
            self._close_if_over(member)

    def _close_if_over(self, member: Member) -> None:
        if member.has_ended and not member.busy:
            self._close(member)

    def _close(self, member: Member) -> None:
        """From here on nobody finds the connection any more."""
        known = self._accounts.get(member.account)
        if known is None or member not in known.all():
            return  # it is closed already
        if member is known.spare:
            known.spare = None
        else:
            del known.members[member.session or ""]
        if member is known.reader:
            known.reader = None
        if not known.members and known.spare is None:
            del self._accounts[member.account]
        self._last = member.upstream.state
        self._restarts += member.upstream.state.restarts
        if member.goes_on:
            member.upstream.keep_session()
        member.scope.cancel()

    def _members(self) -> Iterator[Member]:
        for known in self._accounts.values():
            yield from known.all()

    # What servers say of themselves

    def _heard(self, member: Member, kind: Kind) -> None:
        known = self._accounts.get(member.account)
        if known is not None and member in known.all():
            known.reader = member
        self._tell(member.account, (kind,))

    def _pass_on(self, member: Member, method: str, params: Payload) -> None:
        match self._server.sharing:
            case "session":
                if member.session is None:
                    return  # nobody has it yet
                audience = Audience(member.account, member.session)
            case "account":
                audience = Audience(member.account)
            case "global":
                audience = EVERYBODY
        self._listeners.tell(method, params, audience)

    def _tell(self, account: str, kinds: Sequence[Kind]) -> None:
        for kind in kinds:
            self._watchers.tell(kind, account)


def _level(params: Payload) -> str:
    level = params.object().get("level")
    if level not in LEVELS:
        raise RpcError(INVALID_PARAMS, f"unknown log level {level!r}")
    return str(level)
