"""What a legacy client said about itself in its handshake, and what it asked to hear of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from nanobot.wire.call import Caller
from nanobot.wire.notifications import RESOURCE_UPDATED
from nanobot.wire.rpc import INVALID_PARAMS, Payload, RpcError
from nanobot.wire.versions import negotiate

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
MAX_SUBSCRIPTIONS: Final = 1000


class Peer:
    """The state that `initialize` and later requests of one legacy client built up."""

    __slots__ = ("caller", "initialized", "least_level", "subscriptions")

    def __init__(self, *, account: str = "", session: str | None = None) -> None:
        self.caller = Caller(account=account, session=session)
        self.initialized = False
        self.least_level = 0
        """Place in `LEVELS` of the least severe log message the client wants."""
        self.subscriptions: set[str] = set()

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
        return version

    def set_level(self, params: Mapping[str, Any]) -> None:
        """Take in the params of `logging/setLevel`. Raises `RpcError` (-32602)."""
        self.least_level = level_of(params.get("level"))

    def wants(self, method: str, params: Payload) -> bool:
        """Whether a notification that belongs to no request is for this client."""
        if not self.initialized:
            return False
        if method == RESOURCE_UPDATED:
            return params.object().get("uri") in self.subscriptions
        return True


def level_of(name: object) -> int:
    """The place of a log level in `LEVELS`. Raises `RpcError` (-32602) for anything else."""
    if name not in LEVELS:
        raise RpcError(INVALID_PARAMS, f"unknown log level {name!r}; known: {', '.join(LEVELS)}")
    return LEVELS.index(name)  # pyright: ignore[reportArgumentType]
