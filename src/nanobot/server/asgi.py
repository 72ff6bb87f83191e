"""The one HTTP application: which path leads where.

Routes are chosen by path (and for `/` by method), never by what a client calls itself. Requests for the MCP
endpoint pass the gate and one comparison.
"""

from __future__ import annotations

import logging
import re
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from nanobot.agent.engine import Engine
from nanobot.config.model import Config
from nanobot.server.apps import AppsApi
from nanobot.server.auth.assembly import Authentication
from nanobot.server.browser import BrowserApi
from nanobot.server.event_stream import Closing
from nanobot.server.exchange import ClientGone, Exchange
from nanobot.server.health import HEALTH_PATH, HealthCheck
from nanobot.server.methods import Methods, answer_by_method
from nanobot.server.metrics import Metrics
from nanobot.server.oauth_callback import OAuthCallback
from nanobot.server.pages import Pages, load_pages
from nanobot.server.request_values import RequestValues, passes_values_on
from nanobot.server.security import Gate
from nanobot.server.status import StatusApi
from nanobot.server.thread_events import EventsApi
from nanobot.server.threads import ThreadsApi
from nanobot.upstream.oauth.registration import DOCUMENT_PATH
from nanobot.wire.server_sse import PATHS as SSE_PATHS

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_is_app_path = re.compile(r"/api/apps/[^/]+").fullmatch
_is_mcp_path = re.compile(rf"/mcp(/|/ui|/chat|/{_UUID})?", re.IGNORECASE).fullmatch

log = logging.getLogger(__name__)


def is_mcp(method: str, path: str) -> bool:
    """Whether a request is for the MCP endpoint."""
    return (path == "/" and method == "POST") or _is_mcp_path(path) is not None


def is_app(method: str, path: str) -> bool:
    """Whether a request is what an MCP App asks of its server."""
    return method == "POST" and _is_app_path(path) is not None


def build_application(
    *,
    engine: Engine,
    endpoint: ASGIApp,
    config: Config,
    health: HealthCheck,
    status: StatusApi,
    closing: Closing,
    giving_up: Closing,
    callback: OAuthCallback,
    apps: AppsApi,
    ui: bool = True,
    health_path: str = HEALTH_PATH,
    metrics: Metrics | None = None,
    authentication: Authentication | None = None,
    sse: ASGIApp | None = None,
    browser: BrowserApi | None = None,
) -> ASGIApp:
    """Everything that is served over HTTP, behind its gate.

    `endpoint` answers MCP; `callback` is where people come back to after logging in to an MCP server.
    `closing` ends the event streams that watch threads when the program stops, `giving_up` those of turns
    that are under way, when there is no more time for them.
    Without `ui` there are neither pages nor those streams nor `apps`.
    `health_path` is a second path for health.
    `browser` shows the browser beside us. `sse` answers clients of the older HTTP+SSE transport.
    Without `authentication` whoever passes the gate may use everything.
    """
    router = Router(
        endpoint,
        threads=ThreadsApi(engine, config, giving_up),
        events=EventsApi(engine, closing) if ui else None,
        apps=apps if ui else None,
        status=status,
        health=health,
        health_path=health_path,
        metrics=metrics,
        callback=callback,
        pages=load_pages() if ui else Pages({}),
        sse=sse,
        browser=browser,
    )
    routes = RequestValues(router, config) if passes_values_on(config) else router
    if authentication is None:
        return Gate(routes, config.server)
    return authentication.guard(routes, open_paths=frozenset({health_path, DOCUMENT_PATH}), has_pages=ui)


class Router:
    """Hands a request to the part that answers it. Failures of our own routes are answered here."""

    def __init__(
        self,
        endpoint: ASGIApp,
        *,
        threads: ThreadsApi,
        events: EventsApi | None,
        apps: AppsApi | None,
        status: StatusApi,
        health: HealthCheck,
        health_path: str,
        metrics: Metrics | None,
        callback: OAuthCallback,
        pages: Pages,
        sse: ASGIApp | None,
        browser: BrowserApi | None,
    ) -> None:
        self._endpoint = endpoint
        self._threads = threads
        self._events = events
        self._apps = apps
        self._status = status
        self._health = health
        self._metrics = metrics
        self._health_paths = (HEALTH_PATH, health_path)
        self._callback = callback
        self._pages = pages
        self._sse = sse
        self._browser = browser

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path == "/mcp" or is_mcp(scope["method"], path):
            await self._endpoint(scope, receive, send)
            return
        if self._sse is not None and path in SSE_PATHS:
            await self._sse(scope, receive, send)
            return
        http = Exchange(scope, receive, send)
        try:
            await answer_by_method(http, self._methods(path))
        except ClientGone:
            pass
        except Exception as error:  # the boundary of one request: whatever happens, the client is told
            if http.is_answered:
                raise
            await http.answer_error(error)

    def _methods(self, path: str) -> Methods | None:
        """What can be done at `path`; None if there is no such path."""
        threads, status = self._threads, self._status
        match path.split("/")[1:]:
            case ["api", "threads", id, "messages"] if id:
                return {"POST": partial(threads.send, thread_id=id)}
            case ["api", "threads", id, "stop"] if id:
                return {"POST": partial(threads.stop, thread_id=id)}
            case ["api", "threads", id] if id:
                return {
                    "GET": partial(threads.show, thread_id=id),
                    "PATCH": partial(threads.change, thread_id=id),
                    "DELETE": partial(threads.delete, thread_id=id),
                }
            case ["api", "threads"]:
                return {"GET": threads.listing, "POST": threads.create}
            case ["api", "events", id] if id and self._events:
                return {"GET": partial(self._events.watch, thread_id=id)}
            case ["api", "threads", id, "apps"] if id and self._apps:
                return {"POST": partial(self._apps.open, thread_id=id)}
            case ["api", "apps", ticket] if ticket and self._apps:
                return {"POST": partial(self._apps.act, ticket=ticket)}
            case ["mcp-app", ticket] if ticket and self._apps:
                return {"GET": partial(self._apps.show, ticket=ticket)}
            case ["api", "version"]:
                return {"GET": status.version}
            case ["api", "agents"]:
                return {"GET": status.agents}
            case ["api", "servers"]:
                return {"GET": status.servers}
            case ["metrics"] if self._metrics is not None:
                return {"GET": self._metrics.show}
            case _ if path in self._health_paths:
                return {"GET": self._health.show}
            case _:
                if (methods := self._callback.find(path)) is not None:
                    return methods
                if self._browser is not None and (methods := self._browser.find(path)) is not None:
                    return methods
                page = self._pages.find(path)
                return None if page is None else {"GET": partial(self._pages.show, page=page)}
