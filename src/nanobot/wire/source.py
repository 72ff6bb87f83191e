"""The seam between the hub and whatever has tools: an upstream, a built-in server, an agent.

The hub sees them all alike: lists of entries it may cache, and requests in MCP's own words. The seam lives
down here, and not beside the hub, because upstreams and built-in servers implement it below the hub.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from nanobot.wire.call import NOBODY, Audience, Call, Caller
from nanobot.wire.rpc import Payload

Kind = Literal["tools", "prompts", "resources", "templates"]

Changed = Callable[[Kind, str], None]
"""Told which list changed, and for which account; "" of a source that shows everybody the same."""


Told = Callable[[str, Payload, Audience], None]
"""Takes a notification (method, params) of a server for those whom it concerns. Must not block or raise."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One listed thing. `key` is its name (tools, prompts), URI (resources) or URI template.

    `definition` is the MCP object as the server wrote it, unknown fields included.
    """

    key: str
    definition: Payload


class Source(Protocol):
    """One MCP server as the hub uses it; many requests at once.

    `listing` is what `caller`'s account sees. It raises `UpstreamError` when the server cannot be asked; an
    empty list means it has none.
    `request` takes `tools/call`, `prompts/get`, `resources/read` and the like with the server's own names.
    It raises `RpcError` for an error the server answered, `UpstreamError` when there was no answer, and
    `Busy` when it was not asked because too many use it.
    A method that begins with `notifications/` is told to a server that is connected, and wants no answer.
    `resources/subscribe` makes it tell of a resource until `resources/unsubscribe` was asked as often.
    `watch` calls back for each list that changed, until the returned function is called; `hear` for all else
    that the server says without being asked, such as `notifications/resources/updated`.
    """

    @property
    def name(self) -> str: ...

    async def listing(self, kind: Kind, caller: Caller = NOBODY) -> Sequence[Entry]: ...

    async def request(self, method: str, params: Payload, call: Call) -> Payload: ...

    def watch(self, changed: Changed) -> Callable[[], None]: ...

    def hear(self, told: Told) -> Callable[[], None]: ...
