"""How much a connected server logs: what those who share the connection want, told when it changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import anyio

from nanobot.wire.call import Call
from nanobot.wire.client import Connection, ConnectionLost, NoAnswer
from nanobot.wire.rpc import Payload, RpcError

log = logging.getLogger(__name__)

ANSWER_S: Final = 5.0


class ToldLevel:
    """Of one server. Modern ones learn it with each request, and are told nothing here."""

    def __init__(self, server: str, hide: Callable[[str], str]) -> None:
        """`hide` takes secrets out of what the server says."""
        self._server = server
        self._hide = hide
        self.wanted: str | None = None
        """The least severe log messages that anybody wants; None: none said so."""
        self._told: str | None = None
        self._lock = anyio.Lock()

    def forget(self) -> None:
        """The server knows nothing (any more) of what it was told."""
        self._told = None

    def is_due(self, connection: Connection | None) -> bool:
        """Whether the server logs otherwise than is wanted, for those who said so."""
        is_legacy = connection is not None and connection.connected.era == "legacy"
        return is_legacy and self.wanted not in (None, self._told)

    async def tell(self, connection: Connection) -> None:
        """Have the server log as much as is wanted. One that does not is no trouble of its clients."""
        connected = connection.connected
        if connected.era == "modern" or "logging" not in connected.capabilities:
            return
        async with self._lock:
            level = self.wanted
            if level is None or level == self._told:
                return
            try:
                params = Payload.of({"level": level})
                await connection.request("logging/setLevel", params, Call(), timeout_s=ANSWER_S)
                self._told = level
            except (RpcError, ConnectionLost, NoAnswer) as e:
                reason = self._hide(str(e))
                log.debug("log level not set", extra={"server": self._server, "reason": reason})
