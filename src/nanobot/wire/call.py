"""What travels with one request besides its params: who asks, and where news about it goes."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from nanobot.wire.rpc import Payload
from nanobot.wire.versions import LATEST_LEGACY, Era

Notify = Callable[[str, Payload], None]
"""Send a notification (method, params) that belongs to the request. Never blocks; a slow reader loses it."""

Ask = Callable[[str, Payload], Awaitable[Payload]]
"""Put a question (method, params) to the peer that made the request. Raises `RpcError` if it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who made a request. `account` is "" while authentication is off."""

    account: str = ""
    session: str | None = None
    era: Era = "legacy"
    version: str = LATEST_LEGACY
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    client: Mapping[str, Any] = field(default_factory=dict[str, Any])
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`_meta` of its `initialize`; empty for modern callers, which have no handshake."""
    values: Mapping[str, str] = field(default_factory=dict[str, str], repr=False, compare=False)
    """What the request at hand gave for references in headers, its token among them (`http:bearer-token`).
    Always empty where the configuration passes nothing of the kind on."""
    agent: str = ""
    """Id of the agent that the conversation of its session begins with, if it named one."""
    title: str = ""
    """What the conversation of its session is to be called, if it said that."""
    thread: str = ""
    """Id of the thread that a modern request named in place of a session."""
    target: str = ""
    """Path and query of the address at which it asked, or began its session; "" where there is none."""


NOBODY = Caller()
"""The caller of work that the program does for itself."""


@dataclass(frozen=True, slots=True)
class Audience:
    """Whom news concerns: the callers of one account, or of one session.

    `account` None: those of every account. `session` None: those of every session, "": those without one.
    """

    account: str | None = None
    session: str | None = None

    def includes(self, caller: Caller) -> bool:
        if self.account is not None and self.account != caller.account:
            return False
        return self.session is None or self.session == (caller.session or "")


EVERYBODY = Audience()


class Deferral:
    """Leave of a client to be answered before there is a result: it comes back for that later.

    Whoever answers such a client's call may say that this takes long.
    """

    __slots__ = ("_changed", "due", "is_taken")

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` is called when there is something to look at."""
        self.due = math.inf
        """When the client is not to wait any longer, by the clock of the event loop."""
        self.is_taken = False
        """Whether the client has left and will come back. From then on a cancelled call is one that somebody
        cancelled, and not a lost connection."""
        self._changed = changed

    def after(self, seconds: float) -> None:
        """The result may take longer than `seconds` from now; then the client need not wait for it."""
        self.due = anyio.current_time() + seconds
        self._changed()


@dataclass(slots=True, kw_only=True)
class Call:
    """The company of one request on its way to the server that answers it.

    Cancelling the task that awaits the request cancels the request; there is no other switch.
    For `notifications/progress` the giver of news leaves `progressToken` out; whoever owns the client's
    token puts it back and keeps the values rising.
    """

    caller: Caller = NOBODY
    wants_progress: bool = False
    notify: Notify | None = None
    ask: Ask | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`params._meta` of the request, decoded; without the reserved `io.modelcontextprotocol/` keys."""
    log_level: str | None = None
    """The least severe log messages that the caller wants to hear while it waits; None: none at all."""
    headers: Mapping[bytes, bytes] | None = field(default=None, repr=False)
    """Of the HTTP request by a modern client, which repeats some arguments there; names in lower case."""
    thread: str | None = None
    """Id of the thread for which a tool runs, if it runs for one."""
    folder: Path | None = None
    """Working folder of that thread; file tools resolve relative paths against it."""
    agents: tuple[str, ...] = ()
    """Ids of the agents that wait for this call, the outermost first: delegation is bounded by them."""
    deferral: Deferral | None = None
    """Set where the client can come back for the result."""
    to_server: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """HTTP headers that this request alone carries to the server that is asked."""
    answered_here: frozenset[str] = frozenset()
    """Methods of questions that we answer ourselves, each in a time of its own: a server that waits for such
    an answer is not late."""
    hooks: tuple[str, ...] = ()
    """The hooks on whose behalf this call is made, the outermost first: none of them runs for it."""
