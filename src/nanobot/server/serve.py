"""Serving over HTTP: from bound sockets to a clean stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from socket import socket
from typing import Final, Protocol

import anyio
import uvicorn
from anyio import to_thread
from anyio.abc import TaskStatus
from starlette.types import ASGIApp

from nanobot import __version__
from nanobot.agent.engine import Engine
from nanobot.aio import task_group
from nanobot.config.model import Config
from nanobot.http import Http
from nanobot.hub.audit.log import AuditLog
from nanobot.hub.hub import Hub
from nanobot.hub.overheard import Overhearing
from nanobot.hub.publish import Publisher
from nanobot.hub.relay import lone_server
from nanobot.server.app_tickets import Tickets
from nanobot.server.apps import AppsApi
from nanobot.server.asgi import build_application, is_app, is_mcp
from nanobot.server.auth.assembly import Authentication, is_protected
from nanobot.server.auth.challenge import bearer_challenge
from nanobot.server.auth.public_url import public_url_of
from nanobot.server.browser import BrowserApi, BrowserSettings
from nanobot.server.event_stream import Closing
from nanobot.server.health import HEALTH_PATH, HealthCheck
from nanobot.server.http_protocol import HttpProtocol
from nanobot.server.listener import Listener, open_listener
from nanobot.server.metrics import Load, Measured, MeasuredService, Metrics
from nanobot.server.oauth_callback import OAuthCallback
from nanobot.server.overheard import OverheardPages
from nanobot.server.status import StatusApi
from nanobot.server.stoppable import Stoppable
from nanobot.server.traced import UNTRACED, Traced
from nanobot.store import Store
from nanobot.telemetry import Tracer
from nanobot.upstream.oauth.client import OAuthClient
from nanobot.upstream.pools import Pools
from nanobot.wire.explain import NeedsCredentials
from nanobot.wire.home import Home
from nanobot.wire.http_request import Header, Scope
from nanobot.wire.server_http import Challenge as ChallengeOf
from nanobot.wire.server_http import McpEndpoint
from nanobot.wire.server_sse import PATHS as SSE_PATHS
from nanobot.wire.server_sse import SseEndpoint
from nanobot.wire.service import Service

DRAIN_S: Final = 10
"""How long it may take from the first signal to stop until every connection is closed."""

LAST_WORDS_S: Final = 1
"""The end of that time, in which requests that are still running are answered with an error."""

KEEP_ALIVE_S: Final = 75
"""How long an idle connection is kept for the next request; longer than the pools of common clients."""

log = logging.getLogger(__name__)


class Parts(Protocol):
    """What is served: the running parts of one installation."""

    @property
    def config(self) -> Config: ...
    @property
    def engine(self) -> Engine: ...
    @property
    def hub(self) -> Hub: ...
    @property
    def publisher(self) -> Publisher: ...
    @property
    def service(self) -> Service: ...
    @property
    def tracer(self) -> Tracer | None: ...
    @property
    def overhearing(self) -> Overhearing | None: ...
    @property
    def http(self) -> Http: ...
    @property
    def store(self) -> Store: ...
    @property
    def oauth(self) -> OAuthClient: ...
    @property
    def upstreams(self) -> Pools: ...


async def serve(
    parts: Parts,
    *,
    host: str,
    port: int,
    ui: bool = True,
    health_path: str = HEALTH_PATH,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM.

    Then finish what runs, for at most `DRAIN_S` seconds; a second signal ends that too. `ready` is called
    with the URL once connections are accepted. Raises `PortBusy`. See also `serve_on`.
    """
    await serve_on(open_listener(host, port), parts, ui=ui, health_path=health_path, ready=ready)


async def serve_on(
    listener: Listener,
    parts: Parts,
    *,
    ui: bool = True,
    health_path: str = HEALTH_PATH,
    audit: AuditLog | None = None,
    with_metrics: bool = False,
    with_sse: bool = False,
    ready: Callable[[str], None] | None = None,
    invite: Callable[[str], None] | None = None,
) -> bool:
    """`serve` on sockets that were bound before anything else was started. Closes them.

    Whether everything was finished: False if a second signal ended what still ran.

    `with_metrics`: tell numbers at `/metrics`. `with_sse`: serve the older HTTP+SSE transport at `/sse` too.
    `invite` is called with a link that signs one browser in, if `server.requireSecret` is set.
    """
    config = parts.config
    closing, giving_up = Closing(), Closing()
    browser = BrowserApi(BrowserSettings.of(config.env), parts.http, closing) if ui else None

    def load() -> Load:
        running, waiting = parts.engine.load()
        return Load(
            turns=running,
            waiting_turns=waiting,
            waiting_writes=parts.store.waiting_writes(),
            sessions=len(endpoint.sessions),
            unsaved_sessions=endpoint.sessions.unsaved,
            failed_saves=endpoint.sessions.failed_saves,
        )

    metrics = Metrics(servers=parts.upstreams.states, load=load, audit=audit) if with_metrics else None
    service = parts.service if metrics is None else MeasuredService(parts.service, metrics)
    store = parts.store
    sealer = await to_thread.run_sync(store.sealer)
    home = Home(
        sessions=store.mcp_sessions,
        tasks=store.mcp_tasks,
        key=sealer.derive("request states"),
        process=store.processes.own,
        is_alive=store.processes.is_alive,
        has_thread=parts.engine.has_thread,
    )
    endpoint = McpEndpoint(
        service,
        settings=config.server,
        session_settings=config.sessions,
        home=home,
        attendance=parts.upstreams,
        challenge=_passed_on_challenge(config),
    )
    sse = None
    if with_sse:
        sse = SseEndpoint(
            service,
            settings=config.server,
            session_settings=config.sessions,
            attendance=parts.upstreams,
        )
    authentication = None
    if is_protected(config):
        authentication = Authentication(config, parts.http, parts.store.credentials)
    application = build_application(
        engine=parts.engine,
        endpoint=endpoint,
        config=config,
        health=HealthCheck(parts.engine, config, servers=parts.upstreams.states, offering=parts.publisher),
        status=StatusApi(
            config, servers=parts.upstreams.states, tool_count=parts.hub.tool_count, version=__version__
        ),
        closing=closing,
        giving_up=giving_up,
        callback=OAuthCallback(parts.oauth),
        apps=AppsApi(parts.engine, parts.hub, Tickets(sealer)),
        ui=ui,
        health_path=health_path,
        metrics=metrics,
        authentication=authentication,
        sse=sse,
        browser=browser,
    )
    if parts.overhearing is not None and parts.overhearing.interest.ui:
        application = OverheardPages(application, parts.overhearing.shown)
    if metrics is not None:
        application = Measured(application, metrics)
    if audit is not None:
        application = audited(application, audit, parts.publisher, with_sse=with_sse)
    if parts.tracer is not None:
        application = Traced(application, parts.tracer, untraced=(*UNTRACED, HEALTH_PATH, health_path))

    def started() -> None:
        # What exists now lives as long as the process: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        if ready is not None:
            ready(listener.url)
        if invite is not None and authentication is not None and authentication.launch_secret is not None:
            place = config.server.public_url or listener.url
            invite(f"{place}/login?code={authentication.launch_secret.code}")

    def stop_streams() -> None:
        closing.close()
        endpoint.close()
        if sse is not None:
            sse.close()

    def give_up() -> None:
        giving_up.close()
        endpoint.give_up()

    server = _Server(Stoppable(application), started, stop_streams, give_up)
    try:
        async with task_group() as owner:
            await owner.start(endpoint.run)
            if authentication is not None:
                owner.start_soon(authentication.run)
            if threading.current_thread() is threading.main_thread():
                await owner.start(_stop_on_signals, server)  # before anybody is told that we are there
            await server.serve(list(listener.sockets))
            owner.cancel_scope.cancel()
    finally:
        listener.close()
    return not server.force_exit


def audited(application: ASGIApp, log: AuditLog, publisher: Publisher, *, with_sse: bool = False) -> ASGIApp:
    """`application` with every exchange at the MCP endpoint, and what MCP Apps ask for, noted in `log`."""
    from nanobot.server.audited import Audited

    def is_noted(method: str, path: str) -> bool:
        return is_mcp(method, path) or is_app(method, path) or (with_sse and path in SSE_PATHS)

    return Audited(application, log, is_mcp=is_noted, server_of=publisher.server_of)


def _passed_on_challenge(config: Config) -> ChallengeOf | None:
    """The challenge of a server that is published alone and gets the tokens of its clients; else None."""
    lone = lone_server(config)
    if lone is None or not config.mcp_servers[lone].personal_headers:
        return None
    public_url = public_url_of(config.server.public_url) if is_protected(config) else None

    def challenge(scope: Scope, refused: NeedsCredentials) -> Header:
        return bearer_challenge(public_url, scope, scopes=refused.scopes, error=refused.message)

    return challenge


async def _stop_on_signals(
    server: _Server, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for received in signals:
            if server.should_exit:
                server.force_exit = True
            log.info("stopping", extra={"signal": received.name, "at_once": server.force_exit})
            server.should_exit = True


class _Server(uvicorn.Server):
    """uvicorn as a part of a program that handles signals, logging and sockets itself."""

    def __init__(
        self,
        application: ASGIApp,
        started: Callable[[], None],
        stop_streams: Callable[[], None],
        give_up: Callable[[], None],
    ) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                interface="asgi3",
                http=HttpProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                proxy_headers=False,  # a forwarded header is what the client made up
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=DRAIN_S,
            )
        )
        self._report_start = started
        self._stop_streams = stop_streams
        self._give_up = give_up

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        self._report_start()

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        self._stop_streams()  # they never end by themselves, and running requests are waited for
        async with task_group() as last_words:
            last_words.start_soon(self._end_requests)
            await super().shutdown(sockets)
            last_words.cancel_scope.cancel()
        if self.force_exit:
            self._cut_off()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=LAST_WORDS_S)

    async def _end_requests(self) -> None:
        """Answer what is still running shortly before the time is up: each in its own way, if it can."""
        await asyncio.sleep((self.config.timeout_graceful_shutdown or 0) - LAST_WORDS_S)
        self._give_up()
        await asyncio.sleep(LAST_WORDS_S / 2)
        self._cut_off()

    def _cut_off(self) -> None:
        for task in self.server_state.tasks:
            task.cancel()

    async def serve(self, sockets: list[socket] | None = None) -> None:
        try:
            await super().serve(sockets)
        except anyio.get_cancelled_exc_class():
            self.config.timeout_graceful_shutdown = 1
            with anyio.CancelScope(shield=True):
                await self.shutdown(sockets)
            raise

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
