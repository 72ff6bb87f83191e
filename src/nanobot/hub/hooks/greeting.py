"""The `session` hooks: what happens when an MCP client shakes hands with us."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from nanobot.hub.hooks.events import EventHooks
from nanobot.wire.call import Call, Caller

SESSION = "session"


def greeting(hooks: EventHooks) -> Callable[[Caller], Awaitable[Mapping[str, Any]]]:
    """Runs `hooks` for a client; gives the `_meta` they answered with. Raises `HooksFailed`: no session."""

    async def greet(caller: Caller) -> Mapping[str, Any]:
        payload = {
            "sessionId": caller.session or "",
            "account": caller.account,
            "client": dict(caller.client),
            "_meta": dict(caller.meta),
        }
        after = await hooks.run(SESSION, payload, Call(caller=caller))
        meta = after.get("_meta")
        return cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}

    return greet
