"""The resource `nanobot://servers`: the states of the MCP servers behind us, for MCP clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from nanobot.server.status import ServerStates, ToolCount, servers_json
from nanobot.wire.call import Call, Caller
from nanobot.wire.rpc import Payload
from nanobot.wire.service import Announced, Description, Service

URI: Final = "nanobot://servers"
_NAME: Final = b"nanobot:"
_TYPE: Final = "application/json"

_encode = msgspec.json.Encoder().encode
_DEFINITION: Final = _encode(
    {
        "uri": URI,
        "name": "servers",
        "title": "MCP servers",
        "description": "The MCP servers behind this one, with the state of each.",
        "mimeType": _TYPE,
    }
)
_READ: Final = "resources/read"
_LIST: Final = "resources/list"


class WithServers:
    """`inner` with one resource more, at the top of the first page. It tells an account what the API does."""

    def __init__(self, inner: Service, servers: ServerStates, tool_count: ToolCount) -> None:
        self._inner = inner
        self._servers = servers
        self._tool_count = tool_count

    async def describe(self, caller: Caller) -> Description:
        return await self._inner.describe(caller)

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        if method == _READ and _NAME in params.raw and params.object().get("uri") == URI:
            told = servers_json(call.caller.account, self._servers, self._tool_count)
            content = {"uri": URI, "mimeType": _TYPE, "text": _encode(told).decode()}
            return Payload.of({"contents": [content]})
        result = await self._inner.request(method, params, call)
        return _added(result) if method == _LIST and not params.object().get("cursor") else result

    def watch(self, changed: Announced) -> Callable[[], None]:
        return self._inner.watch(changed)


def _added(result: Payload) -> Payload:
    """A list of resources with ours in front; all else keeps its bytes."""
    members = result.members()
    rest = bytes(members.get("resources", b"[]")).strip()
    comma = b"" if rest[1:].lstrip()[:1] == b"]" else b","
    members["resources"] = msgspec.Raw(b"[" + _DEFINITION + comma + rest[1:])
    return Payload(_encode(members))
