"""Which era a server spoke before the program was started: a place to begin, and not believed."""

from __future__ import annotations

import logging
from typing import Protocol

from nanobot.config.model import McpServer
from nanobot.errors import StoreError
from nanobot.upstream.definition import digest
from nanobot.wire.versions import Era

log = logging.getLogger(__name__)


class Eras(Protocol):
    """Remembers which era servers spoke, by the digest of their definition. May raise `StoreError`."""

    async def find(self, definition: str) -> str | None: ...

    async def save(self, definition: str, era: str) -> None: ...


class EraMemory:
    """Of one server. Without `eras`, or where the definition names the era, there is nothing to remember."""

    def __init__(self, server: McpServer, eras: Eras | None) -> None:
        self._server = server
        self._eras = eras if server.protocol == "auto" else None
        self._noted: Era | None = None

    async def recall(self) -> Era | None:
        if self._eras is None:
            return None
        try:
            found = await self._eras.find(digest(self._server))
        except StoreError as e:
            log.debug("era not known", extra={"server": self._server.name, "reason": str(e)})
            return None
        self._noted = found if found in ("legacy", "modern") else None
        return self._noted

    async def note(self, era: Era) -> None:
        if self._eras is None or era == self._noted:
            return
        self._noted = era
        try:
            await self._eras.save(digest(self._server), era)
        except StoreError as e:
            log.debug("era not noted", extra={"server": self._server.name, "reason": str(e)})
