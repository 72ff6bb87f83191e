"""A tool of an MCP server as a hook: its arguments are the payload, its data is the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from nanobot.config.model import Reference
from nanobot.errors import NanobotError
from nanobot.hub.hooks.hook import HookFailed, JsonObject
from nanobot.wire.call import Call
from nanobot.wire.rpc import Payload

if TYPE_CHECKING:
    from collections.abc import Callable

    from nanobot.hub.hub import Hub


class ToolHook:
    """Satisfies `Hook`. `hub` is asked when the hook runs: hooks are made before the hub is.

    The call has the time that every call of that server has.
    """

    def __init__(self, reference: Reference, hub: Callable[[], Hub]) -> None:
        self._reference = reference
        self._hub = hub

    async def run(self, event: str, payload: JsonObject, call: Call) -> Any:
        hub = self._hub()
        reference = self._reference
        listing = await hub.tools((Reference(reference.server),))
        tool = listing.by_name.get(reference.tool or "")
        if tool is None:
            reason = listing.missing[0].message if listing.missing else "its server has no such tool"
            raise HookFailed(reason)
        try:
            result = (await hub.call(tool, Payload.of(payload), call)).object()
        except NanobotError as e:
            raise HookFailed(str(e)) from e
        return _answer(result)


def _answer(result: JsonObject) -> Any:
    """The object a tool answered with, None if it answered with something else."""
    content = result.get("content")
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    only = cast("JsonObject", blocks[0]) if len(blocks) == 1 and isinstance(blocks[0], dict) else {}
    text = only.get("text") if only.get("type") == "text" else None
    if result.get("isError"):
        raise HookFailed("the tool reported an error")
    if isinstance(result.get("structuredContent"), dict):
        return result["structuredContent"]
    if isinstance(text, str):
        try:
            return msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            return None
    return None
