"""A whole nanobot behind a real socket, its model scripted, and a client that sees what is on the wire."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from nanobot.aio import task_group
from nanobot.app import App, open_app
from nanobot.config.model import Agent, AuthSettings, Config, LlmProvider, Publish, ServerSettings
from nanobot.config.places import Reference
from nanobot.http import Http, HttpAnswer, open_http
from nanobot.server.listener import open_listener
from nanobot.server.serve import serve_on
from nanobot.sse import SseEvent, SseParser
from nanobot.testing.model_server import ModelServer, model_server

EVENTS = {"Accept": "text/event-stream"}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Events:
    """A stream of events being read."""

    status: int
    source: AsyncIterator[bytes]
    parser: SseParser = field(default_factory=SseParser)
    ready: list[SseEvent] = field(default_factory=list[SseEvent])

    async def next(self) -> SseEvent | None:
        """The next event that says something; None at the end of the stream."""
        while not self.ready:
            chunk = await anext(self.source, None)
            if chunk is None:
                return None
            self.ready += [e for e in self.parser.feed(chunk) if not e.comment]
        return self.ready.pop(0)

    async def until(self, name: str) -> list[SseEvent]:
        """All events up to the first one called `name`, which is the last of them."""
        seen: list[SseEvent] = []
        with anyio.fail_after(20):
            while (event := await self.next()) is not None:
                seen.append(event)
                if event.event == name:
                    return seen
        raise AssertionError(f"the stream ended without {name!r}: {seen}")

    async def rest(self) -> list[SseEvent]:
        seen: list[SseEvent] = []
        with anyio.fail_after(20):
            while (event := await self.next()) is not None:
                seen.append(event)
        return seen


@dataclass(frozen=True)
class Served:
    """A running nanobot and ways to ask it."""

    url: str
    app: App
    model: ModelServer
    client: Http
    invitations: list[str] = field(default_factory=list[str])
    """Links that sign a browser in."""

    async def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        sent = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        got: HttpAnswer = await self.client.request(method, self.url + path, headers=sent, body=body)
        return Answer(got.status, got.headers, got.body)

    @asynccontextmanager
    async def events(
        self, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Events]:
        """An event stream, by GET or with a JSON body by POST. Leaving the block closes the connection."""
        sent = {**EVENTS, **(headers or {})}
        if body is not None:
            sent["Content-Type"] = "application/json"
        content = None if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        async with self.client.stream(method, self.url + path, headers=sent, body=content) as got:
            yield Events(got.status, got.chunks())

    async def thread(self, **fields: str) -> str:
        """A new thread's id."""
        answer = await self.ask("POST", "/api/threads", fields)
        assert answer.status == 201, answer.body
        return answer.json["id"]


def configured(
    home: Path,
    model: ModelServer,
    settings: ServerSettings | None,
    first: tuple[Agent, ...],
    auth: AuthSettings | None = None,
) -> Config:
    """Two agents on the scripted model, after those in `first`; `main` may use the file tools."""
    provider = LlmProvider(name="script", dialect="OpenAIChatCompletions", base_url=model.url, api_key="x")
    tools = (Reference(server="nanobot.system"),)
    agents = [
        *first,
        Agent(id="main", name="Main", model="script/m", mcp_servers=tools, starter_messages=("Hi",)),
        Agent(id="other", model="script/m"),
    ]
    return Config(
        home=home,
        agents={agent.id: agent for agent in agents},
        llm_providers={"script": provider},
        publish=Publish(entrypoint=tuple(agent.id for agent in agents)),
        server=settings or ServerSettings(),
        auth=auth or AuthSettings(),
    )


@asynccontextmanager
async def served(
    home: Path,
    *,
    settings: ServerSettings | None = None,
    ui: bool = True,
    first: tuple[Agent, ...] = (),
    port: int = 0,
    with_sse: bool = False,
    auth: AuthSettings | None = None,
    adjust: Callable[[Config], Config] = lambda config: config,
) -> AsyncGenerator[Served]:
    """Everything running on loopback, on a free port if none is given."""
    async with model_server() as model, open_http() as client:
        async with (
            open_app(adjust(configured(home, model, settings, first, auth)), shows_apps=ui) as app,
            task_group() as group,
        ):
            started: list[str] = []
            is_up = anyio.Event()

            invitations: list[str] = []

            def ready(url: str) -> None:
                started.append(url)
                is_up.set()

            async def run() -> None:
                await serve_on(
                    open_listener("127.0.0.1", port),
                    app,
                    ui=ui,
                    with_sse=with_sse,
                    ready=ready,
                    invite=invitations.append,
                )

            group.start_soon(run)
            await is_up.wait()
            yield Served(started[0], app, model, client, invitations)
            group.cancel_scope.cancel()
