"""A session at an HTTP server that outlives our connection to it: what it takes to go on with it later."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import msgspec

from nanobot.wire.client import Connected
from nanobot.wire.versions import LEGACY_VERSIONS


@dataclass(frozen=True, slots=True)
class Continuation:
    """The session `id` at a server, and what the server said in the handshake that began it.

    `place` is a digest of the address: the id of one server is never told to another.
    """

    place: str
    id: str = field(repr=False)
    connected: Connected
    _json: dict[str, Any] = field(default_factory=dict[str, Any], init=False, repr=False, compare=False)

    def is_at(self, url: str) -> bool:
        return self.place == place_of(url)

    def to_json(self) -> dict[str, Any]:
        """For a store: `{place, id, initializeResult}`, always the same object; it is not to be changed."""
        if not self._json:
            about = self.connected
            said = _Said(about.version, dict(about.server_info), dict(about.capabilities), about.instructions)
            self._json.update(msgspec.to_builtins(_Kept(self.place, self.id, said)))
        return self._json

    @staticmethod
    def from_json(kept: object) -> Continuation | None:
        """What `to_json` gave; None for anything else: then the session begins anew."""
        try:
            read = msgspec.convert(kept, _Kept)
        except msgspec.ValidationError:
            return None
        said = read.said
        if said.version not in LEGACY_VERSIONS:
            return None
        connected = Connected(
            era="legacy",
            version=said.version,
            server_info=said.server_info,
            capabilities=said.capabilities,
            instructions=said.instructions,
        )
        return Continuation(read.place, read.id, connected)


class _Said(msgspec.Struct, rename="camel"):
    version: str = msgspec.field(name="protocolVersion")
    server_info: dict[str, Any]
    capabilities: dict[str, Any]
    instructions: str


class _Kept(msgspec.Struct):
    place: str
    id: str
    said: _Said = msgspec.field(name="initializeResult")


def place_of(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:32]
