"""Servers that ask for a model: answered by agents of ours, put to the client, or refused, as configured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol

from nanobot.config.model import McpServer
from nanobot.hub.around import Around
from nanobot.upstream.inputs import asks_only, completed
from nanobot.wire.call import Call
from nanobot.wire.rpc import METHOD_NOT_FOUND, Payload, RpcError
from nanobot.wire.source import Source

CREATE: Final = "sampling/createMessage"


class Sampler(Protocol):
    """Answers `sampling/createMessage` of `server`; `call` is the call that made the server ask.

    Raises `RpcError` for a request that makes no sense or that nobody answers.
    """

    async def create(self, server: McpServer, params: Payload, call: Call) -> Payload: ...


def sampled(
    sources: Mapping[str, Source], servers: Mapping[str, McpServer], sampler: Sampler | None
) -> dict[str, Source]:
    """`sources`, those whose servers may not or need not ask a client for a model being wrapped.

    `sampler` None: no agent could answer, so what is not off goes to the client.
    """
    return {name: _sampled(source, servers.get(name), sampler) for name, source in sources.items()}


def _sampled(source: Source, server: McpServer | None, sampler: Sampler | None) -> Source:
    if server is None or server.builtin or server.sampling == "client":
        return source
    if server.sampling == "off":
        sampler = None
    elif sampler is None:
        return source
    return Sampled(source, server, sampler)


class Sampled(Around):
    """`inner`, whose questions for a model are answered by `sampler`; None: it may not ask for one."""

    def __init__(self, inner: Source, server: McpServer, sampler: Sampler | None) -> None:
        super().__init__(inner)
        self._server = server
        self._sampler = sampler

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        if self._sampler is None:
            return await self._inner.request(method, params, _without_model(call))
        call = self._with_model(call, self._sampler)
        result = await self._inner.request(method, params, call)
        if call.caller.era == "modern" and asks_only(result, CREATE):

            async def again(params: Payload) -> Payload:
                return await self._inner.request(method, params, call)

            return await completed(result, params, call, again)
        return result

    def _with_model(self, call: Call, sampler: Sampler) -> Call:
        """`call` as of a caller that has a model for the server, and is otherwise what it was."""
        ask = call.ask

        async def asked(method: str, params: Payload) -> Payload:
            if method == CREATE:
                return await sampler.create(self._server, params, call)
            if ask is None:
                raise RpcError(METHOD_NOT_FOUND, f"nobody here answers {method}")
            return await ask(method, params)

        offered = call.caller.capabilities
        if ask is None and call.caller.era == "legacy":  # nobody can be asked anything else
            offered = {name: offered[name] for name in ("extensions",) if name in offered}
        caller = replace(call.caller, capabilities={**offered, "sampling": {"tools": {}}})
        return replace(call, caller=caller, ask=asked, answered_here=call.answered_here | {CREATE})


def _without_model(call: Call) -> Call:
    offered = call.caller.capabilities
    if "sampling" not in offered:
        return call
    offered = {name: value for name, value in offered.items() if name != "sampling"}
    return replace(call, caller=replace(call.caller, capabilities=offered))
