"""The seam behind a listening MCP endpoint: what is served, however it is carried."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from nanobot.wire.call import Audience, Call, Caller
from nanobot.wire.rpc import Payload

Announced = Callable[[str, Payload, Audience], None]
"""Takes a notification (method, params) for the downstreams that it concerns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What `initialize` and `server/discover` tell about the service."""

    server_info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    instructions: str = ""


class Service(Protocol):
    """Answers MCP requests of every downstream, many at once.

    The wire answers by itself: `initialize`, `server/discover`, `ping`, `logging/setLevel`, cancellation,
    `subscriptions/listen`. Everything else comes here; `RpcError` is the only error that reaches a client
    as it is, `UpstreamError` is translated, anything else becomes -32603 with a log entry.
    A notification of a client comes as a request, too (its method begins with `notifications/`); what becomes
    of it is told to nobody.
    Results are in legacy form; the wire adds what the modern era requires (`resultType`, `ttlMs`, …).
    """

    async def describe(self, caller: Caller) -> Description: ...

    async def request(self, method: str, params: Payload, call: Call) -> Payload: ...

    def watch(self, changed: Announced) -> Callable[[], None]:
        """Be told what belongs to no request until the returned function is called: lists that changed
        (`notifications/…/list_changed`), resources that were subscribed to, what servers say on their own."""
        ...
