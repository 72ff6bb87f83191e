"""The composition root: which parts there are, in which order they start, and in which they stop.

Read `open_app` to know what runs. Everything below gets what it needs as an argument; nothing is global.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from anyio.abc import TaskStatus

from nanobot import __version__
from nanobot.agent.chat import AgentChats
from nanobot.agent.engine import Engine
from nanobot.agent.sampling import AgentSampler, candidates
from nanobot.aio import task_group
from nanobot.builtin.agents import agent_server
from nanobot.builtin.system import system_server
from nanobot.config.expand import expand
from nanobot.config.home import database_in
from nanobot.config.model import Config, McpServer
from nanobot.errors import StoreError
from nanobot.http import Http, open_http
from nanobot.hub.audit.trail import note_hooks
from nanobot.hub.guests import open_guests
from nanobot.hub.hooks.hooks import Hooks
from nanobot.hub.hub import Hub
from nanobot.hub.overheard import Overhearing
from nanobot.hub.publish import Publisher
from nanobot.hub.relay import lone_server
from nanobot.hub.roots import Rooted, nothing, within
from nanobot.hub.sampling import sampled
from nanobot.hub.traced import TracedService, TracedSource
from nanobot.llm.router import Models
from nanobot.server.servers_resource import WithServers
from nanobot.store import Store, open_store
from nanobot.telemetry import Tracer, open_tracer
from nanobot.upstream.connection import Upstream
from nanobot.upstream.launcher import Launcher
from nanobot.upstream.oauth.client import OAuthClient, callback_uri
from nanobot.upstream.oauth.exchange import TokenExchange
from nanobot.upstream.pools import Pools
from nanobot.upstream.roots import Root
from nanobot.upstream.sandbox import find_sandbox
from nanobot.upstream.secrecy import RecentSecrets
from nanobot.upstream.traced_http import TracedHttp
from nanobot.wire.continuation import Continuation
from nanobot.wire.service import Service
from nanobot.wire.source import Source
from nanobot.wire.versions import Era

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """A running nanobot without its front doors."""

    config: Config
    http: Http
    store: Store
    models: Models
    upstreams: Pools
    oauth: OAuthClient
    """Logs in to servers that want it."""
    hub: Hub
    publisher: Publisher
    service: Service
    """What clients are served: the publisher, or what stands around it."""
    tracer: Tracer | None
    overhearing: Overhearing | None
    """What of messages is told in the log."""
    engine: Engine

    def check_models(self) -> None:
        """Raise `ConfigError` for the first agent whose model cannot be used as configured."""
        for agent in self.config.agents.values():
            self.models.choose(agent)


@asynccontextmanager
async def open_app(
    config: Config,
    *,
    own_port: int | None = None,
    extra_sources: Mapping[str, Source] | None = None,
    roots: Sequence[Root] = (),
    lists_anew: bool = False,
    shows_apps: bool = False,
) -> AsyncGenerator[App]:
    """Everything above the wire, running. Upstreams connect in the background: nothing here waits for one.

    Raises `StoreError` for a home that cannot be made or a database that cannot be opened; then nothing was
    started. Leaving stops turns first, then servers, then the store.
    `own_port` is where we will listen ourselves, so that we are not taken for a local model server and people
    can come back there after logging in to a server.
    With `lists_anew` tools are listed again before each call of one by a client.
    `roots` are shown to MCP servers after those of the client.
    `shows_apps`: our own page shows the user interfaces of tools, which servers are told.
    `extra_sources` stand in for configured servers of the same name: how a program brings tools of its own.
    """
    try:
        config.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as e:
        raise StoreError(f"The directory for our data, '{config.home}', cannot be made: {e.strerror}.") from e
    extra = dict(extra_sources or {})
    key = expand(config.auth.encryption_key, config.env)
    database = open_store(database_in(config.home), env=config.env, encryption_key=key)
    tracing = open_tracer(config.env, trusts_peers=config.server.trust_trace_context)
    async with tracing as tracer, open_http() as http, database as store:
        models = Models(config, http)
        await models.start(avoid_ports={own_port} if own_port else ())
        sandbox = find_sandbox()
        recent = RecentSecrets()
        launcher = Launcher(sandbox=sandbox, home=config.home, roots=roots, recent=recent)
        to_servers = http if tracer is None else TracedHttp(http, tracer)
        oauth = OAuthClient(
            http=http,
            grants=store.grants,
            leases=store.leases,
            env=config.env,
            redirect_uri=callback_uri(config.server.public_url, own_port),
            public_url=config.server.public_url,
            recent=recent,
        )
        exchange = _token_exchange(config, http)
        hooks = Hooks(config, http, audit=note_hooks)

        def connect(
            server: McpServer,
            account: str,
            last_era: Era | None,
            continuation: Continuation | None,
            with_apps: bool,
        ) -> Upstream:
            return Upstream(
                server,
                http=to_servers,
                env=config.env,
                version=__version__,
                account=account,
                last_era=last_era,
                eras=store.eras,
                continuation=continuation,
                launcher=launcher,
                oauth=oauth,
                exchange=exchange,
                checkpoint=hooks.checkpoint(server, account),
                shows_apps=with_apps,
            )

        def connect_guest(
            server: McpServer,
            account: str,
            last_era: Era | None,
            continuation: Continuation | None,
            with_apps: bool,
        ) -> Upstream:
            """Without anything of ours: variables, logins and memories are for trusted servers."""
            return Upstream(
                server,
                http=to_servers,
                env={},
                version=__version__,
                account=account,
                last_era=last_era,
                continuation=continuation,
            )

        servers = [s for s in config.mcp_servers.values() if not s.builtin and s.name not in extra]
        upstreams = Pools(servers, connect, sessions=config.sessions, shows_apps=shows_apps)
        system = system_server(home=config.home, sandbox=sandbox, env=config.env)
        agents = agent_server(config)
        sources = {**upstreams, system.name: system, agents.name: agents, **extra}
        overhearing = Overhearing.of(config, sources, recent)
        if overhearing is not None:
            sources = overhearing.sources(sources)
        traced = functools.partial(_traced, tracer)
        sources = traced(sources)
        sampler = AgentSampler(config, models, hooks.agents()) if candidates(config) else None
        sources = sampled(hooks.around(sources), config.mcp_servers, sampler)
        sources |= {server.name: _rooted(sources[server.name], server, roots) for server in servers}
        hub = Hub(config, sources, personal=upstreams.personal())
        hooks.connect(hub)
        limit = turn_limit(config.env)
        engine = Engine(
            config,
            threads=store.threads,
            models=models,
            hub=hub,
            max_turns=limit,
            hooks=hooks.agents(),
            open_guests=functools.partial(open_guests, config=config, connect=connect_guest, around=traced),
        )
        agents.connect(AgentChats(engine, config.agents))
        publisher = Publisher(
            config, hub, version=__version__, greeting=hooks.greeting(), lists_anew=lists_anew
        )
        service: Service = publisher
        if lone_server(config) is None:  # a server that is published alone looks as it does without us
            service = WithServers(publisher, upstreams.states, hub.tool_count)
        if overhearing is not None:
            service = overhearing.service(service)
        async with _running(upstreams), _running(hub, hooks), _running(engine):
            yield App(
                config=config,
                http=http,
                store=store,
                models=models,
                upstreams=upstreams,
                oauth=oauth,
                hub=hub,
                publisher=publisher,
                service=service if tracer is None else TracedService(service, tracer),
                tracer=tracer,
                overhearing=overhearing,
                engine=engine,
            )


def _traced(tracer: Tracer | None, sources: Mapping[str, Source]) -> Mapping[str, Source]:
    if tracer is None:
        return sources
    return {name: TracedSource(source, tracer) for name, source in sources.items()}


def _rooted(source: Source, server: McpServer, roots: Sequence[Root]) -> Source:
    """`source` with the roots that it is to know of: one in a container, only of those that are there."""
    if server.in_container:
        may_see_more = server.sandbox is not None and server.sandbox.client_roots
        return Rooted(source, roots, within(roots) if may_see_more else nothing)
    return Rooted(source, roots) if roots else source


def _token_exchange(config: Config, http: Http) -> TokenExchange | None:
    """Where callers' tokens are exchanged for those of servers; None: nowhere."""
    auth, env = config.auth, config.env
    if not auth.oauth_token_url:
        return None
    return TokenExchange(
        http,
        expand(auth.oauth_token_url, env),
        client_id=expand(auth.oauth_client_id, env),
        client_secret=expand(auth.oauth_client_secret, env),
    )


class _Part(Protocol):
    async def run(self, *, task_status: TaskStatus[None] = ...) -> None: ...


@asynccontextmanager
async def _running(*parts: _Part) -> AsyncGenerator[None]:
    """Each part started within the block and ended with it."""
    async with task_group() as owner:
        for part in parts:
            await owner.start(part.run)
        yield
        owner.cancel_scope.cancel()


def turn_limit(env: Mapping[str, str]) -> int | None:
    """`NANOBOT_MAX_CONCURRENT_REQUESTS`: how many turns may run at once; None: any number."""
    text = env.get("NANOBOT_MAX_CONCURRENT_REQUESTS", "").strip()
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        log.warning("NANOBOT_MAX_CONCURRENT_REQUESTS is no whole number; turns are not limited")
        return None
    return number if number > 0 else None
