"""Being a client of an MCP server: what a connection offers, and how the two sides agree on a revision.

Transports (`client_duplex`, `client_http`) carry messages; everything they have in common is here: the
facts learned from a server, the errors of a lost connection, the handshake of both eras.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import anyio

from nanobot.errors import NanobotError
from nanobot.narrow import object_of
from nanobot.wire.call import Call
from nanobot.wire.notifications import INITIALIZED
from nanobot.wire.rpc import METHOD_NOT_FOUND, UNSUPPORTED_VERSION, Payload, RpcError
from nanobot.wire.versions import (
    ALL_VERSIONS,
    LATEST_LEGACY,
    LATEST_MODERN,
    LEGACY_VERSIONS,
    META_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_SERVER_INFO,
    META_VERSION,
    MODERN_VERSIONS,
    Era,
)

log = logging.getLogger(__name__)

PROBE_S: Final = 3.0
"""How long a server may think about `server/discover` before it is taken for one of the legacy era."""

_NOT_KNOWN: Final = (UNSUPPORTED_VERSION, METHOD_NOT_FOUND)

EraChoice = Literal["auto", "legacy", "modern"]

Heard = Callable[[str, Payload], None]
"""Takes a notification (method, params) that belongs to no request. Must not block or raise."""


class ConnectionLost(NanobotError):
    """No answer, and none will come. `maybe_sent`: the server may have received (and run) the request."""

    code = "connection.lost"

    def __init__(self, reason: str, *, maybe_sent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.maybe_sent = maybe_sent


class NoAnswer(NanobotError):
    """The server did not answer within `timeout_s` seconds; it was told that nobody waits any more."""

    code = "connection.timeout"

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"no answer within {timeout_s:g} s")
        self.timeout_s = timeout_s


class NoCommonVersion(NanobotError):
    """The server speaks no revision that we speak."""

    code = "connection.version"

    def __init__(self, theirs: str) -> None:
        super().__init__(f"the server speaks MCP {theirs}; nanobot speaks {', '.join(ALL_VERSIONS)}")


class Denied(NanobotError):
    """A checkpoint did not let a message of a handshake, or a ping, through, as `refusal` tells.

    `is_final`: somebody decided so, and would again. Otherwise the checkpoint itself is in trouble.
    """

    code = "connection.denied"

    def __init__(self, method: str, refusal: RpcError, *, is_final: bool) -> None:
        super().__init__(f"{method!r} was not let through: {refusal.message}")
        self.refusal = refusal
        self.is_final = is_final


class Checkpoint(Protocol):
    """What the messages pass that hold a connection together: the handshake in both directions, and pings."""

    async def exchange(
        self, method: str, params: Payload, send: Callable[[Payload], Awaitable[Payload]]
    ) -> Payload:
        """The answer to a request, which `send` puts to the other side with the params that it may have.

        Either may have been changed on its way. Raises `Denied`, and what `send` raises: `RpcError`,
        `ConnectionLost`, `NoAnswer`.
        """
        ...

    async def notification(self, method: str) -> Payload | None:
        """The params (None: none) with which a notification may go out. Raises `Denied`."""
        ...


class Discretion(Protocol):
    """Knows what must not be told of a server's words; gives the same back where there is nothing to hide."""

    def hide(self, text: str) -> str: ...

    def hide_in_json(self, payload: Payload) -> Payload: ...


class Openness:
    """Hides nothing; satisfies `Discretion`."""

    def hide(self, text: str) -> str:
        return text

    def hide_in_json(self, payload: Payload) -> Payload:
        return payload


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What we tell a server about ourselves, and what we are willing to speak."""

    version: str
    """Our program's version."""
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Declared once to legacy servers; modern ones are told per request what its caller can do."""
    protocol: EraChoice = "auto"
    called: str = ""
    """What we call the server. Its log messages are passed on under this name; with none, as they are."""
    last_era: Era | None = None
    """What the server spoke before, if it is known: tried first, and not believed."""
    checkpoint: Checkpoint | None = None
    """What the handshake and pings pass; None: nothing looks at them."""
    discretion: Discretion = field(default_factory=Openness)
    """Stands before the log, and before what the server itself logs."""

    @property
    def client_info(self) -> dict[str, str]:
        return {"name": "nanobot", "version": self.version}


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """What a server told about itself."""

    era: Era
    version: str
    """The protocol revision agreed on."""
    server_info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    instructions: str = ""


class Connection(Protocol):
    """A server that has shaken hands; used by many tasks at once.

    Made by a context manager (`open_duplex`, `open_streamable_http`) whose end closes it.
    """

    @property
    def connected(self) -> Connected: ...

    async def request(self, method: str, params: Payload, call: Call, *, timeout_s: float) -> Payload:
        """The server's result. News about the request goes to `call.notify`, questions to `call.ask`.

        `timeout_s` starts again with each progress notification and stands still while a question is open.
        Raises `RpcError` as the server answered it, `NoAnswer`, `ConnectionLost`.
        """
        ...

    async def notify(self, method: str, params: Payload) -> None:
        """Tell the server something. Raises `ConnectionLost`."""
        ...

    @property
    def is_alive(self) -> bool:
        """False once `lost` has something to say."""
        ...

    async def listen(self, params: Payload, acknowledged: Callable[[Payload], None] | None = None) -> None:
        """`subscriptions/listen`: keep it open until the server ends it. Raises `RpcError`, `ConnectionLost`.

        `acknowledged` takes the params of the acknowledgement.
        """
        ...

    async def renewed(self) -> None:
        """Wait until the server has begun a new session with us, and so forgotten what we told it before."""
        ...

    async def lost(self) -> str:
        """Wait until the connection can be used no more; says why."""
        ...


class Handshaker(Protocol):
    """One bare request or notification, as a transport sends it before anything is agreed.

    `version` None: nothing is known yet. Raises `RpcError` for any refusal by the server (a transport with
    statuses of its own translates them) and `ConnectionLost`.
    """

    async def ask(self, method: str, params: Payload, *, version: str | None) -> Payload: ...

    async def tell(self, method: str, params: Payload | None = None, *, version: str) -> None: ...


def envelope(
    hello: Hello, version: str, capabilities: Mapping[str, Any], *, log_level: str | None = None
) -> dict[str, Any]:
    """The members that every modern request carries in `params._meta`."""
    members: dict[str, Any] = {
        META_VERSION: version,
        META_CLIENT_INFO: hello.client_info,
        META_CAPABILITIES: capabilities,
    }
    return members if log_level is None else members | {META_LOG_LEVEL: log_level}


async def shake_hands(peer: Handshaker, hello: Hello, *, probe: bool) -> Connected:
    """Agree with a server on era and revision.

    With `auto` and `probe`, `server/discover` comes first and whatever refuses it is asked to `initialize`;
    one that was only slow, and refuses that too, is asked to discover once more, without haste.
    Without `probe`, `initialize` comes first, because a legacy server on a pipe may never answer a method
    it does not know; only its refusal by name (-32022, -32601) leads to the modern era. Where the era of the
    last time is known, its question comes first.
    Raises `NoCommonVersion`, `RpcError`, `ConnectionLost`, `Denied`.
    """
    hasty = _watched(_Hasty(peer), hello)
    peer = _watched(peer, hello)
    if hello.protocol == "legacy":
        return await _initialize(peer, hello)
    if hello.protocol == "modern":
        found = await _discover(peer, hello)
        if found is None:
            raise NoCommonVersion("only in revisions that begin with initialize")
        return found
    if hello.last_era is not None:
        probe = hello.last_era == "modern"
    was_slow = False
    if probe:
        try:
            if (found := await _probe(hasty, hello)) is not None:
                return found
        except NoAnswer:
            was_slow = True
    try:
        return await _initialize(peer, hello)
    except (RpcError, NoCommonVersion) as refusal:
        found = None
        if was_slow:
            found = await _probe(peer, hello)
        elif not probe and isinstance(refusal, RpcError) and refusal.rpc_code in _NOT_KNOWN:
            found = await _discover(peer, hello)
        if found is None:
            raise
        return found


class _Hasty:
    """`peer`, asked without much patience. `ask` also raises `NoAnswer`."""

    def __init__(self, peer: Handshaker) -> None:
        self._peer = peer

    async def ask(self, method: str, params: Payload, *, version: str | None) -> Payload:
        with anyio.move_on_after(PROBE_S):
            return await self._peer.ask(method, params, version=version)
        raise NoAnswer(PROBE_S)

    async def tell(self, method: str, params: Payload | None = None, *, version: str) -> None:
        await self._peer.tell(method, params, version=version)


def _watched(peer: Handshaker, hello: Hello) -> Handshaker:
    return peer if hello.checkpoint is None else _Watched(peer, hello.checkpoint)


class _Watched:
    """`peer` behind a checkpoint. `ask` also raises `Denied`."""

    def __init__(self, peer: Handshaker, checkpoint: Checkpoint) -> None:
        self._peer = peer
        self._checkpoint = checkpoint

    async def ask(self, method: str, params: Payload, *, version: str | None) -> Payload:
        async def send(params: Payload) -> Payload:
            return await self._peer.ask(method, params, version=version)

        return await self._checkpoint.exchange(method, params, send)

    async def tell(self, method: str, params: Payload | None = None, *, version: str) -> None:
        del params  # nothing that is told in a handshake has any of its own
        try:
            allowed = await self._checkpoint.notification(method)
        except Denied as e:
            log.info("notification dropped", extra={"method": method, "reason": e.refusal.message})
        else:
            await self._peer.tell(method, allowed, version=version)


async def _probe(peer: Handshaker, hello: Hello) -> Connected | None:
    try:
        return await _discover(peer, hello)
    except RpcError:
        return None


async def _discover(peer: Handshaker, hello: Hello) -> Connected | None:
    """Facts of a modern server; None if it only knows legacy revisions.

    A server that refuses our version and names one that we speak is asked once more, with that.
    Raises `NoCommonVersion` if all it knows is newer than we are.
    """
    try:
        result = await _ask_about(peer, hello, LATEST_MODERN)
    except RpcError as refusal:
        supported = _supported(refusal)
        if not supported:
            raise
        common = [version for version in MODERN_VERSIONS if version in supported]
        if common:
            result = await _ask_about(peer, hello, common[-1])
        elif any(version in LEGACY_VERSIONS for version in supported):
            return None
        else:
            raise NoCommonVersion(", ".join(supported)) from refusal
    offered = [str(version) for version in _array(result.get("supportedVersions"))]
    common = [version for version in MODERN_VERSIONS if version in offered]
    if not common:
        return None
    return Connected(
        era="modern",
        version=common[-1],
        server_info=object_of(object_of(result.get("_meta")).get(META_SERVER_INFO)),
        capabilities=object_of(result.get("capabilities")),
        instructions=_text(result.get("instructions")),
    )


async def _ask_about(peer: Handshaker, hello: Hello, version: str) -> Mapping[str, Any]:
    params = Payload.of({"_meta": envelope(hello, version, {})})
    return (await peer.ask("server/discover", params, version=version)).object()


async def _initialize(peer: Handshaker, hello: Hello) -> Connected:
    params = {
        "protocolVersion": LATEST_LEGACY,
        "capabilities": dict(hello.capabilities),
        "clientInfo": hello.client_info,
    }
    try:
        result = (await peer.ask("initialize", Payload.of(params), version=None)).object()
    except RpcError as refusal:
        supported = _supported(refusal)
        if supported and not any(version in ALL_VERSIONS for version in supported):
            raise NoCommonVersion(", ".join(supported)) from refusal
        raise
    version = _text(result.get("protocolVersion"))
    if version not in LEGACY_VERSIONS:
        raise NoCommonVersion(version or "of no version it names")
    connected = Connected(
        era="legacy",
        version=version,
        server_info=object_of(result.get("serverInfo")),
        capabilities=object_of(result.get("capabilities")),
        instructions=_text(result.get("instructions")),
    )
    await peer.tell(INITIALIZED, version=version)
    return connected


def _supported(refusal: RpcError) -> list[str]:
    """The versions that a server named when it refused ours."""
    if refusal.rpc_code != UNSUPPORTED_VERSION or refusal.data is None:
        return []
    return [str(version) for version in _array(object_of(refusal.data.value).get("supported"))]


def _array(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
