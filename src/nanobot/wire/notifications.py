"""The notifications of MCP by name: news that wants no answer."""

from __future__ import annotations

from typing import Final

from nanobot.wire.rpc import Id, Payload, encode_notification

PREFIX: Final = "notifications/"

INITIALIZED: Final = "notifications/initialized"
CANCELLED: Final = "notifications/cancelled"
PROGRESS: Final = "notifications/progress"
LOG_MESSAGE: Final = "notifications/message"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"

ROOTS_CHANGED: Final = "notifications/roots/list_changed"
"""The one of a client that concerns every server it uses."""
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
PROMPTS_CHANGED: Final = "notifications/prompts/list_changed"
RESOURCES_CHANGED: Final = "notifications/resources/list_changed"
RESOURCE_UPDATED: Final = "notifications/resources/updated"

CHANGES: Final = frozenset({TOOLS_CHANGED, PROMPTS_CHANGED, RESOURCES_CHANGED, RESOURCE_UPDATED})
"""News that belongs to no request. The modern era carries it on `subscriptions/listen` streams only."""


OF_THE_LINE: Final = frozenset({INITIALIZED, CANCELLED, PROGRESS})
"""Those of a client that concern its connection to us alone."""


def cancelled(request: Id) -> bytes:
    """The encoded word that nobody waits for the answer to `request` any more."""
    return encode_notification(CANCELLED, Payload.of({"requestId": request}))
