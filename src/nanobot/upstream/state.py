"""What is known of a configured server at the moment: for monitors, lists and people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nanobot.wire.versions import Era

State = Literal["idle", "starting", "ready", "auth_required", "backoff", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamState:
    """What is known of a server now. `since`: seconds since the epoch at which `state` began.

    `connections`: how many there are to it; the rest tells of the one that says most.

    idle: nobody has needed it · auth_required: a person has to log in, at `auth_url` (or, if that is "", with
    `nanobot mcp login`) · backoff: waits before the next attempt · failed: its definition cannot be used, or
    a hook denied the handshake, so there is no next attempt. `restarts` counts connections after the first.
    """

    name: str
    kind: Literal["stdio", "http"]
    state: State = "idle"
    era: Era | None = None
    protocol_version: str = ""
    server_info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    last_error: str = ""
    since: float = 0.0
    restarts: int = 0
    auth_url: str = ""
    connections: int = 1
