"""Names of protocol extensions that both our sides know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nanobot.narrow import object_of
from nanobot.wire.call import Caller

APPS: Final = "io.modelcontextprotocol/ui"
"""Whoever declares it can show the user interfaces that tools come with (MCP Apps)."""
APP_TYPE: Final = "text/html;profile=mcp-app"
"""Media type of a document that is such an interface."""
SHOWS_APPS: Final[Mapping[str, Any]] = {APPS: {"mimeTypes": [APP_TYPE]}}
"""How it is declared, as a member of `extensions`."""

TASKS: Final = "io.modelcontextprotocol/tasks"
"""Whoever declares it can come back for the result of a call that takes long."""


def declares(capabilities: Mapping[str, Any], extension: str) -> bool:
    """Whether the capabilities of a client or a server contain the extension."""
    return extension in object_of(capabilities.get("extensions"))


def shows_apps(caller: Caller) -> bool:
    """Whether a client declared that it can show apps."""
    return declares(caller.capabilities, APPS)
