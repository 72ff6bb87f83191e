"""A tool of an MCP server as a hook: its arguments are the payload, its data is the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from nanobot.config.model import McpServer
from nanobot.errors import NanobotError
from nanobot.hub.hooks.hook import HookFailed, JsonObject
from nanobot.wire.call import Call
from nanobot.wire.rpc import Payload

if TYPE_CHECKING:
    from nanobot.hub.hub import Hub


class ToolHook:
    """Satisfies `Hook`. `hub` is asked when the hook runs: hooks are made before the hub is.

    The tool is not looked up in a list: lists pass hooks themselves, and one would wait for the other.
    The call has the time that every call of that server has.
    """

    def __init__(self, server: McpServer, tool: str, hub: Callable[[], Hub]) -> None:
        self._server = server.name
        self._tool = own_name(server, tool)
        self._hub = hub

    async def run(self, event: str, payload: JsonObject, call: Call) -> Any:
        if self._tool is None:
            raise HookFailed(f"the configuration of {self._server!r} leaves no such tool")
        params = Payload.of({"name": self._tool, "arguments": payload})
        try:
            result = (await self._hub().request(self._server, "tools/call", params, call)).object()
        except NanobotError as e:
            raise HookFailed(str(e)) from e
        return _answer(result)


def own_name(server: McpServer, name: str) -> str | None:
    """What `server` calls the tool that is `name` after allowing, overriding and prefixing; None: no tool."""
    if not name.startswith(server.tool_prefix):
        return None
    bare = name.removeprefix(server.tool_prefix)
    if server.tool_overrides:
        shown = {override.name or own: own for own, override in server.tool_overrides.items()}
        own = shown.get(bare)
    else:
        own = bare
    is_allowed = server.allow_tools is None or own in server.allow_tools
    return own if is_allowed else None


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
