"""The protocol revisions we speak and the two eras they fall into.

Legacy: `initialize` handshake, sessions. Modern: no handshake, every request carries its envelope in
`params._meta`. Versions are compared by their place in the list, never as text.
"""

from __future__ import annotations

from typing import Final, Literal

Era = Literal["legacy", "modern"]

LEGACY_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS: Final = ("2026-07-28",)
ALL_VERSIONS: Final = (*LEGACY_VERSIONS, *MODERN_VERSIONS)
LATEST_LEGACY: Final = LEGACY_VERSIONS[-1]
LATEST_MODERN: Final = MODERN_VERSIONS[-1]

META_PREFIX: Final = "io.modelcontextprotocol/"
"""Keys of `_meta` that begin like this belong to the protocol: each connection writes its own."""
META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
META_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
META_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
META_SESSION: Final = "ai.nanobot/session"
"""Ours: in a result the thread a conversation began in, in a request the thread or session to go on with."""
META_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"


def is_at_least(version: str, least: str) -> bool:
    """Whether `version` is `least` or came after it. Both must be among `ALL_VERSIONS`."""
    return ALL_VERSIONS.index(version) >= ALL_VERSIONS.index(least)


def negotiate(requested: str) -> str:
    """The version an `initialize` is answered with: the requested one if we serve it, else our latest."""
    return requested if requested in LEGACY_VERSIONS else LATEST_LEGACY
