"""What a server says while it works on a request, passed through hooks one by one and in order."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from nanobot.aio import task_group
from nanobot.hub.hooks.hook import HookRejected, JsonObject
from nanobot.hub.hooks.messages import MessageHooks
from nanobot.wire.call import Call, Notify
from nanobot.wire.rpc import Payload, RpcError

log = logging.getLogger(__name__)

MOST_WAITING: Final = 1000
"""News that waits for hooks; what comes on top is dropped, as for every slow reader."""


class News:
    """The notifications of the request that `call` belongs to."""

    def __init__(self, hooks: MessageHooks, call: Call) -> None:
        self._hooks = hooks
        self._call = call

    @asynccontextmanager
    async def passing_on(self) -> AsyncGenerator[Notify]:
        """Gives where to put news. Leaving waits until all of it has passed; each hook has its own limit."""
        send, receive = anyio.create_memory_object_stream[tuple[str, Payload]](MOST_WAITING)

        def notify(method: str, params: Payload) -> None:
            try:  # what has no hooks waits as well: news keeps its order
                send.send_nowait((method, params))
            except anyio.WouldBlock:
                log.warning("news dropped: hooks are too slow", extra={"method": method})
            except anyio.ClosedResourceError:
                log.debug("news came after the answer", extra={"method": method})

        async with task_group() as group:
            group.start_soon(self._pass_on, receive)
            with send:
                yield notify

    async def _pass_on(self, receive: MemoryObjectReceiveStream[tuple[str, Payload]]) -> None:
        with receive:
            async for method, params in receive:
                try:
                    params = await passed_on(self._hooks, method, params, self._call)
                except HookRejected as e:
                    log.info("notification dropped", extra={"method": method, "reason": e.reason})
                except RpcError as e:
                    log.warning("senseless news dropped", extra={"method": method, "reason": e.message})
                else:
                    if self._call.notify is not None:
                        self._call.notify(method, params)


async def passed_on(hooks: MessageHooks, method: str, params: Payload, call: Call) -> Payload:
    """The params with which a notification may go on. Raises `HookRejected`, `RpcError` for bad params."""
    if not hooks.concern(method, "request"):
        return params
    about = params.object()
    message: JsonObject = {"jsonrpc": "2.0", "method": method, "params": about}
    passed = await hooks.run(method, "request", message, call, about=about)
    return Payload.of(passed.message.get("params") or {}) if passed.is_mutated else params
