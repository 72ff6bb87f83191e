"""Spans around what is asked of us and what we ask of servers. Composed only while tracing is on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from nanobot.config.redact import redact_text
from nanobot.hub.around import Around
from nanobot.telemetry import CONTEXT_KEYS, Tracer
from nanobot.wire.call import NOBODY, Call, Caller
from nanobot.wire.rpc import Payload, RpcError
from nanobot.wire.service import Announced, Description, Service
from nanobot.wire.source import Entry, Kind, Source

_LISTS: Final[Mapping[Kind, str]] = {
    "tools": "mcp.tools.list",
    "prompts": "mcp.prompts.list",
    "resources": "mcp.resources.list",
    "templates": "mcp.resources.templates.list",
}
_NAMED_BY: Final[Mapping[str, tuple[str, str]]] = {
    "tools/call": ("name", "mcp.tool.name"),
    "prompts/get": ("name", "mcp.prompt.name"),
    "resources/read": ("uri", "mcp.resource.uri"),
    "resources/subscribe": ("uri", "mcp.resource.uri"),
    "resources/unsubscribe": ("uri", "mcp.resource.uri"),
    "logging/setLevel": ("level", "mcp.logging.level"),
}
"""Which member of the params names what a request is about, and the attribute for it."""


@dataclass(frozen=True, slots=True)
class TracedService:
    """`inner`, every request of a client being a span."""

    inner: Service
    tracer: Tracer

    async def describe(self, caller: Caller) -> Description:
        return await self.inner.describe(caller)

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        attributes = {"mcp.method.name": method, **_about(method, params)}
        said = ((key, call.meta.get(key)) for key in CONTEXT_KEYS)
        caller = {key: value for key, value in said if isinstance(value, str)}
        with self.tracer.span(method, "server", attributes, caller=caller):
            return await self.inner.request(method, params, call)

    def watch(self, changed: Announced) -> Callable[[], None]:
        return self.inner.watch(changed)


class TracedSource(Around):
    """`inner`, every request to the server being a span that the server is told of."""

    def __init__(self, inner: Source, tracer: Tracer) -> None:
        super().__init__(inner)
        self._tracer = tracer

    async def listing(self, kind: Kind, caller: Caller = NOBODY) -> Sequence[Entry]:
        with self._tracer.span(_LISTS[kind], "client", {"mcp.server.name": self.name}):
            return await self._inner.listing(kind, caller)

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        attributes = {"mcp.server.name": self.name, **_about(method, params)}
        with self._tracer.span(_span_name(method), "client", attributes):
            return await self._inner.request(method, _telling(params, call, self._tracer.carrier()), call)


def _span_name(method: str) -> str:
    """`tools/call` as `mcp.tools.call`, `logging/setLevel` as `mcp.logging.set_level`."""
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in method)
    return "mcp." + snake.replace("/", ".")


def _about(method: str, params: Payload) -> dict[str, str]:
    """What a request is about, as an attribute. Arguments are none of a trace's business."""
    if method not in _NAMED_BY:
        return {}
    member, attribute = _NAMED_BY[method]
    try:
        value = Payload.encoded(params.members().get(member, b"null")).value
    except RpcError:
        return {}
    return {attribute: redact_text(value)[:1024]} if isinstance(value, str) else {}


def _telling(params: Payload, call: Call, carrier: Mapping[str, str]) -> Payload:
    """`params` with our trace in `_meta`, where the caller's would be; every other member keeps its bytes."""
    members: dict[str, Any] = dict(params.members())
    given = members.get("_meta")
    meta: dict[str, Any] = dict(call.meta) if given is None else dict(Payload.encoded(given).members())
    kept = {key: value for key, value in meta.items() if key not in CONTEXT_KEYS}
    members["_meta"] = {**kept, **carrier}
    return Payload(msgspec.json.encode(members))
