"""Servers that ask for a model: answered by agents of ours, put to the client, or refused, as configured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import msgspec

from nanobot.config.model import McpServer
from nanobot.hub.relay import Introduced
from nanobot.upstream.inputs import completed
from nanobot.wire.call import NOBODY, Call, Caller
from nanobot.wire.client import Connected
from nanobot.wire.rpc import Payload
from nanobot.wire.source import Changed, Entry, Kind, Source, Told

CREATE: Final = "sampling/createMessage"
_MARK: Final = b'"input_required"'


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
    if isinstance(source, Introduced):
        return _SampledUpstream(source, source, server, sampler)
    return Sampled(source, server, sampler)


class Sampled:
    """`inner`, whose questions for a model are answered by `sampler`; None: it may not ask for one."""

    def __init__(self, inner: Source, server: McpServer, sampler: Sampler | None) -> None:
        self._inner = inner
        self._server = server
        self._sampler = sampler

    @property
    def name(self) -> str:
        return self._inner.name

    async def listing(self, kind: Kind, caller: Caller = NOBODY) -> Sequence[Entry]:
        return await self._inner.listing(kind, caller)

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        if self._sampler is None:
            return await self._inner.request(method, params, _without_model(call))
        call = self._with_model(call, self._sampler)
        result = await self._inner.request(method, params, call)
        if call.caller.era == "modern" and _needs_only_models(result):

            async def again(params: Payload) -> Payload:
                return await self._inner.request(method, params, call)

            return await completed(result, params, call, again)
        return result

    def watch(self, changed: Changed) -> Callable[[], None]:
        return self._inner.watch(changed)

    def hear(self, told: Told) -> Callable[[], None]:
        return self._inner.hear(told)

    def _with_model(self, call: Call, sampler: Sampler) -> Call:
        """`call` as of a caller that has a model for the server, and is otherwise what it was."""
        ask = call.ask

        async def asked(method: str, params: Payload) -> Payload:
            if method == CREATE or ask is None:
                return await sampler.create(self._server, params, call)
            return await ask(method, params)

        offered = call.caller.capabilities
        if ask is None and call.caller.era == "legacy":  # nobody can be asked anything else
            offered = {name: offered[name] for name in ("extensions",) if name in offered}
        caller = replace(call.caller, capabilities={**offered, "sampling": {"tools": {}}})
        return replace(call, caller=caller, ask=asked)


class _SampledUpstream(Sampled):
    """`Sampled` around a server with a connection."""

    def __init__(
        self, inner: Source, introduced: Introduced, server: McpServer, sampler: Sampler | None
    ) -> None:
        super().__init__(inner, server, sampler)
        self._introduced = introduced

    async def ready(self, caller: Caller) -> Connected:
        return await self._introduced.ready(caller)


def _without_model(call: Call) -> Call:
    offered = call.caller.capabilities
    if "sampling" not in offered:
        return call
    offered = {name: value for name, value in offered.items() if name != "sampling"}
    return replace(call, caller=replace(call.caller, capabilities=offered))


class _Needed(msgspec.Struct, rename={"kind": "resultType", "requests": "inputRequests"}):
    kind: str = "complete"
    requests: dict[str, dict[str, Any]] = {}


def _needs_only_models(result: Payload) -> bool:
    if _MARK not in result.raw:  # nearly always; spares decoding
        return False
    try:
        needed = msgspec.json.decode(result.raw, type=_Needed)
    except msgspec.DecodeError:
        return False
    return (
        needed.kind == "input_required"
        and bool(needed.requests)
        and all(request.get("method") == CREATE for request in needed.requests.values())
    )
