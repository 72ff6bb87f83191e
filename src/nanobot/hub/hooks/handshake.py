"""What holds a connection to a server together, passed through the server's hooks: handshakes and pings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count

from nanobot.hub.hooks.answers import Direction
from nanobot.hub.hooks.hook import HookRejected, JsonObject
from nanobot.hub.hooks.messages import MessageHooks, Passed
from nanobot.hub.hooks.outcome import error_answer, result_or_raise
from nanobot.wire.call import Call, Caller
from nanobot.wire.client import ConnectionLost, Denied, NoAnswer
from nanobot.wire.rpc import Payload, RpcError


class HookedHandshake:
    """Satisfies `wire.client.Checkpoint` for the connections that `account` has to one server.

    `handshake` are the hooks for what comes before a connection can be used, `hooks` those for the rest.
    """

    def __init__(self, handshake: MessageHooks, hooks: MessageHooks, account: str) -> None:
        self._handshake = handshake
        self._hooks = hooks
        self._call = Call(caller=Caller(account=account))
        self._ids = count(1)

    async def exchange(
        self, method: str, params: Payload, send: Callable[[Payload], Awaitable[Payload]]
    ) -> Payload:
        hooks = self._hooks if method == "ping" else self._handshake
        if not hooks.concern(method, "request") and not hooks.concern(method, "response"):
            return await send(params)
        about = params.object()
        request: JsonObject = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": about}
        passed = await self._pass(hooks, method, "request", request, about)
        if passed.is_mutated:
            about = passed.message.get("params", {})
            params = Payload.of(about)
        try:
            result = await send(params)
        except (RpcError, ConnectionLost, NoAnswer) as e:
            passed = await self._pass(hooks, method, "response", error_answer(request, e), about)
            if not passed.is_mutated:
                raise
            return Payload.of(result_or_raise(passed.message))
        answer: JsonObject = {"jsonrpc": "2.0", "id": request["id"], "result": result.object()}
        passed = await self._pass(hooks, method, "response", answer, about)
        return Payload.of(result_or_raise(passed.message)) if passed.is_mutated else result

    async def notification(self, method: str) -> Payload | None:
        message: JsonObject = {"jsonrpc": "2.0", "method": method}
        passed = await self._pass(self._handshake, method, "request", message, {})
        params = passed.message.get("params")
        return Payload.of(params) if params else None

    async def _pass(
        self, hooks: MessageHooks, method: str, direction: Direction, message: JsonObject, about: JsonObject
    ) -> Passed:
        """The message as it may go on. Raises `Denied`."""
        try:
            return await hooks.pass_on(method, direction, message, self._call, about=about)
        except HookRejected as e:
            raise Denied(method, e, is_final=e.is_decision) from e
