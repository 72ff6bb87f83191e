"""What a legacy client said about itself in its handshake, and what it asked to hear of.

All of it can be kept (`record`) and put back (`restore`) in another process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from nanobot.wire.call import Caller
from nanobot.wire.notifications import LOG_MESSAGE, RESOURCE_UPDATED
from nanobot.wire.rpc import INVALID_PARAMS, Payload, RpcError
from nanobot.wire.versions import negotiate

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
MAX_SUBSCRIPTIONS: Final = 1000


AGENT: Final = "agent"
TITLE: Final = "title"
"""Attributes that a client may give its session when it begins; see `Caller`."""

_NOTHING: Final[Mapping[str, Any]] = {}


class _Record(msgspec.Struct):
    version: str
    capabilities: Mapping[str, Any]
    client: Mapping[str, Any]
    meta: Mapping[str, Any]
    level: int
    subscriptions: list[str]
    attributes: Mapping[str, Any]
    asked_level: bool = False


_decode_record = msgspec.json.Decoder(_Record).decode


class Peer:
    """The state that `initialize` and later requests of one legacy client built up."""

    __slots__ = (
        "asked_level",
        "attributes",
        "caller",
        "changed",
        "initialized",
        "least_level",
        "notes",
        "subscriptions",
    )

    def __init__(self, *, account: str = "", session: str | None = None) -> None:
        self.caller = Caller(account=account, session=session)
        self.initialized = False
        self.least_level = 0
        """Place in `LEVELS` of the least severe log message the client wants."""
        self.asked_level = False
        """Whether it said so. Until then it gets what servers say of themselves."""
        self.subscriptions: set[str] = set()
        self.notes = 0
        """Notifications of the client that are on their way to servers."""
        self.attributes: Mapping[str, Any] = _NOTHING
        """What else is to be kept with the client, by name: JSON values. See `put`."""
        self.changed: frozenset[str] = frozenset()
        """Parts that changed since they were saved: `client`, `level`, `subscriptions`, or an attribute."""

    def begin(self, *, agent: str, title: str, target: str) -> None:
        """Take in what a client says about its session before it introduces itself."""
        for name, value in ((AGENT, agent), (TITLE, title)):
            if value:
                self.put(name, value)
        self.caller = replace(self.caller, agent=agent, title=title, target=target)

    def introduce(self, params: Mapping[str, Any]) -> str:
        """Take in the params of `initialize`; the version to answer with. Raises `RpcError` (-32602)."""
        requested = params.get("protocolVersion")
        capabilities = params.get("capabilities", {})
        client = params.get("clientInfo", {})
        meta = params.get("_meta", {})
        if not isinstance(requested, str):
            raise RpcError(INVALID_PARAMS, "initialize needs a protocolVersion (a string)")
        if not all(isinstance(part, dict) for part in (capabilities, client, meta)):
            raise RpcError(INVALID_PARAMS, "initialize: capabilities, clientInfo and _meta must be objects")
        version = negotiate(requested)
        self.caller = replace(
            self.caller, version=version, capabilities=capabilities, client=client, meta=meta
        )
        self.initialized = True
        self.note("client")
        return version

    def set_level(self, params: Mapping[str, Any]) -> None:
        """Take in the params of `logging/setLevel`. Raises `RpcError` (-32602)."""
        self.least_level = level_of(params.get("level"))
        self.asked_level = True
        self.note("level")

    def note(self, part: str) -> None:
        """`part` has changed and is to be saved."""
        self.changed |= {part}

    def put(self, name: str, value: Any) -> None:
        """Keep a JSON value with the client, for as long as its session lives; None removes it."""
        kept = {key: old for key, old in self.attributes.items() if key != name}
        self.attributes = kept if value is None else {**kept, name: value}
        self.note(name)

    def record(self) -> bytes:
        """Everything above, as JSON."""
        caller = self.caller
        return msgspec.json.encode(
            _Record(
                version=caller.version,
                capabilities=caller.capabilities,
                client=caller.client,
                meta=caller.meta,
                level=self.least_level,
                subscriptions=sorted(self.subscriptions),
                attributes=self.attributes,
                asked_level=self.asked_level,
            )
        )

    def restore(self, record: bytes) -> None:
        """Take in what `record` gave, here or in another process, except for parts that changed since."""
        kept = _decode_record(record)
        if "client" not in self.changed:
            self.caller = replace(
                self.caller,
                version=negotiate(kept.version),
                capabilities=kept.capabilities,
                client=kept.client,
                meta=kept.meta,
                agent=str(kept.attributes.get(AGENT, "")),
                title=str(kept.attributes.get(TITLE, "")),
            )
            self.initialized = True
        if "level" not in self.changed:
            self.least_level = min(max(kept.level, 0), len(LEVELS) - 1)
            self.asked_level = kept.asked_level
        if "subscriptions" not in self.changed:
            self.subscriptions = set(kept.subscriptions)
        ours = {name: value for name, value in self.attributes.items() if name in self.changed}
        theirs = {name: value for name, value in kept.attributes.items() if name not in self.changed}
        self.attributes = {**theirs, **ours} or _NOTHING

    def wants(self, method: str, params: Payload) -> bool:
        """Whether a notification that belongs to no request is for this client."""
        if not self.initialized:
            return False
        if method == RESOURCE_UPDATED:
            return params.object().get("uri") in self.subscriptions
        if method == LOG_MESSAGE:
            return is_loud(params.object().get("level"), self.least_level)
        return True


def is_loud(level: object, least: int) -> bool:
    """Whether a log message of `level` is wanted by somebody who wants no less than `least`."""
    return level not in LEVELS or LEVELS.index(level) >= least  # pyright: ignore[reportArgumentType]


def level_of(name: object) -> int:
    """The place of a log level in `LEVELS`. Raises `RpcError` (-32602) for anything else."""
    if name not in LEVELS:
        raise RpcError(INVALID_PARAMS, f"unknown log level {name!r}; known: {', '.join(LEVELS)}")
    return LEVELS.index(name)  # pyright: ignore[reportArgumentType]
