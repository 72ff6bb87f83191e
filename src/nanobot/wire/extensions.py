"""Names of protocol extensions that both our sides know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

APPS: Final = "io.modelcontextprotocol/ui"
"""Whoever declares it can show the user interfaces that tools come with (MCP Apps)."""
APP_TYPE: Final = "text/html;profile=mcp-app"
"""Media type of a document that is such an interface."""
SHOWS_APPS: Final[Mapping[str, Any]] = {APPS: {"mimeTypes": [APP_TYPE]}}
"""How it is declared, as a member of `extensions`."""
