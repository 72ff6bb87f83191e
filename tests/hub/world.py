"""The world of the hub tests: sources that behave as told, and a hub over them that is running."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from nanobot.aio import task_group
from nanobot.config.model import Config, Publish
from nanobot.config.places import Reference
from nanobot.errors import UpstreamUnavailable
from nanobot.hub.hub import Hub
from nanobot.hub.publish import Publisher
from nanobot.wire.call import EVERYBODY, NOBODY, Audience, Call, Caller
from nanobot.wire.rpc import METHOD_NOT_FOUND, Payload, RpcError
from nanobot.wire.source import Changed, Entry, Kind, Source, Told


@dataclass
class Server:
    """An MCP server as the hub sees it: lists what it was given, echoes calls, counts what it is asked."""

    name: str
    tools: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    prompts: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    resources: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    templates: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    answers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    is_down: bool = False
    gate: anyio.Event = field(default_factory=anyio.Event)
    asked: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    listed: list[Kind] = field(default_factory=list[Kind])
    watchers: list[Changed] = field(default_factory=list[Changed])
    listeners: list[Told] = field(default_factory=list[Told])

    def __post_init__(self) -> None:
        self.gate.set()

    def hangs(self) -> Server:
        self.gate = anyio.Event()
        return self

    async def listing(self, kind: Kind, caller: Caller = NOBODY) -> Sequence[Entry]:
        self.listed.append(kind)
        await self.gate.wait()
        if self.is_down:
            raise UpstreamUnavailable(self.name, "it crashed")
        key = {"tools": "name", "prompts": "name", "resources": "uri", "templates": "uriTemplate"}[kind]
        return [Entry(one[key], Payload(json.dumps(one).encode())) for one in getattr(self, kind)]

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        self.asked.append((method, json.loads(params.raw)))
        if method in self.answers:
            return Payload.of(self.answers[method])
        if method != "tools/call":
            raise RpcError(METHOD_NOT_FOUND, method)
        text = json.dumps({"server": self.name, **json.loads(params.raw)})
        return Payload.of({"content": [{"type": "text", "text": text}]})

    def watch(self, changed: Changed) -> Callable[[], None]:
        self.watchers.append(changed)
        return lambda: self.watchers.remove(changed)

    def hear(self, told: Told) -> Callable[[], None]:
        self.listeners.append(told)
        return lambda: self.listeners.remove(told)

    def says(self, method: str, audience: Audience = EVERYBODY, **params: Any) -> None:
        for told in tuple(self.listeners):
            told(method, Payload.of(params), audience)

    def says_changed(self, kind: Kind, account: str = "") -> None:
        for watcher in tuple(self.watchers):
            watcher(kind, account)


def tool(name: str, **members: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": {}}, **members}


def config(**fields: Any) -> Config:
    return Config(home=Path("/nowhere"), **fields)


def refs(*texts: str) -> tuple[Reference, ...]:
    """`server[/tool][:alias]`, as a configuration reads them."""
    found: list[Reference] = []
    for text in texts:
        head, _, alias = text.partition(":")
        server, _, name = head.partition("/")
        found.append(Reference(server, name or None, alias or None))
    return tuple(found)


@asynccontextmanager
async def running(settings: Config, *sources: Source, personal: Collection[str] = ()) -> AsyncGenerator[Hub]:
    hub = Hub(settings, {source.name: source for source in sources}, personal=personal)
    async with task_group() as group:
        await group.start(hub.run)
        yield hub
        group.cancel_scope.cancel()


class Client:
    """A downstream without a wire: what it asks, and the notifications it gets."""

    def __init__(self, publisher: Publisher, **caller: Any) -> None:
        self.publisher = publisher
        self.call = Call(caller=Caller(**caller))
        self.news: list[str] = []
        self._heard = anyio.Event()
        publisher.watch(self._hear)

    def _hear(self, method: str, params: Payload, audience: Audience) -> None:
        if not audience.includes(self.call.caller):
            return
        self.news.append(method)
        self._heard.set()

    async def hears(self) -> str:
        """The next notification."""
        while not self.news:
            await self._heard.wait()
            self._heard = anyio.Event()
        return self.news.pop(0)

    async def ask(self, method: str, **params: Any) -> Any:
        payload = Payload(json.dumps(params).encode())
        return json.loads((await self.publisher.request(method, payload, self.call)).raw)

    async def names(self, method: str = "tools/list", member: str = "tools", key: str = "name") -> list[str]:
        return [one[key] for one in (await self.ask(method))[member]]


@asynccontextmanager
async def publishing(
    publish: Publish, *sources: Source, era: str = "legacy", **fields: Any
) -> AsyncGenerator[Client]:
    settings = config(publish=publish, **fields)
    async with running(settings, *sources) as hub:
        yield Client(Publisher(settings, hub, version="1.2.3"), era=era)
