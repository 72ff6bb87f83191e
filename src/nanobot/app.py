"""The composition root: which parts there are, in which order they start, and in which they stop.

Read `open_app` to know what runs. Everything below gets what it needs as an argument; nothing is global.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from nanobot import __version__
from nanobot.agent.engine import Engine
from nanobot.aio import task_group
from nanobot.builtin.agents import agent_server
from nanobot.builtin.system import system_server
from nanobot.config.model import Config
from nanobot.http import Http, open_http
from nanobot.hub.hub import Hub
from nanobot.hub.publish import Publisher
from nanobot.hub.source import Source
from nanobot.llm.router import Models
from nanobot.store import Store, open_store
from nanobot.upstream.connection import Upstream
from nanobot.upstream.sandbox import find_sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """A running nanobot without its front doors."""

    config: Config
    http: Http
    store: Store
    models: Models
    upstreams: Mapping[str, Upstream]
    hub: Hub
    publisher: Publisher
    engine: Engine


@asynccontextmanager
async def open_app(
    config: Config, *, extra_sources: Mapping[str, Source] | None = None
) -> AsyncGenerator[App]:
    """Everything above the wire, running. Upstreams connect in the background: nothing here waits for one.

    Raises `ConfigError` for a model that cannot be used and `StoreError` for a database that cannot be
    opened; then nothing was started. Leaving stops turns first, then servers, then the store.
    `extra_sources` stand in for configured servers of the same name: how a program brings tools of its own.
    """
    config.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    async with open_http() as http, open_store(config.home / "nanobot.db") as store, task_group() as owner:
        extra = dict(extra_sources or {})
        models = Models(config, http)
        await models.start()
        upstreams = {
            server.name: Upstream(server, http=http, env=config.env, version=__version__)
            for server in config.mcp_servers.values()
            if not server.builtin and server.name not in extra
        }
        system = system_server(home=config.home, sandbox=find_sandbox(), env=config.env)
        agents = agent_server(config)
        sources: dict[str, Source] = {**upstreams, system.name: system, agents.name: agents, **extra}
        hub = Hub(config, sources)
        engine = Engine(config, threads=store.threads, models=models, hub=hub)
        agents.connect(engine)
        for part in (*upstreams.values(), hub, engine):
            await owner.start(part.run)
        yield App(
            config=config,
            http=http,
            store=store,
            models=models,
            upstreams=upstreams,
            hub=hub,
            publisher=Publisher(config, hub, version=__version__),
            engine=engine,
        )
        owner.cancel_scope.cancel()
