"""Numbers for a monitor, as Prometheus reads them. Composed only where they are asked for."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nanobot.hub.audit.log import AuditLog
from nanobot.server.exchange import Exchange
from nanobot.upstream.state import UpstreamState
from nanobot.wire.call import Call, Caller
from nanobot.wire.rpc import Payload
from nanobot.wire.service import Announced, Description, Service

BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0)
"""Upper bounds of the classes of durations."""
_ROUTES: Final = ("mcp", "api", "v1", "healthz", "metrics", "assets")
_HTTP_METHODS: Final = ("GET", "POST", "DELETE", "PATCH", "PUT", "HEAD", "OPTIONS")
_MCP_METHODS: Final = (
    *("tools/list", "tools/call", "prompts/list", "prompts/get", "resources/list", "resources/read"),
    *("resources/templates/list", "resources/subscribe", "resources/unsubscribe", "completion/complete"),
)
_TYPE: Final = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
_NOT_KEPT: Final = (b"cache-control", b"no-store")

Labels = tuple[tuple[str, str], ...]


class Durations:
    """How many took how long, by label."""

    def __init__(self) -> None:
        self._counts: dict[Labels, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS_S) + 1))
        self._sums: Counter[Labels] = Counter()

    def add(self, labels: Labels, seconds: float) -> None:
        self._counts[labels][bisect_left(BUCKETS_S, seconds)] += 1
        self._sums[labels] += seconds  # pyright: ignore[reportArgumentType] - a Counter adds floats as well

    def lines(self, name: str) -> Iterable[str]:
        for labels, counts in self._counts.items():
            below = 0
            for bound, count in zip((*BUCKETS_S, None), counts, strict=True):
                below += count
                limit = "+Inf" if bound is None else f"{bound:g}"
                yield _line(f"{name}_bucket", (*labels, ("le", limit)), below)
            yield _line(f"{name}_sum", labels, self._sums[labels])
            yield _line(f"{name}_count", labels, below)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is there at one moment. `failed_saves` counts since the start."""

    turns: int
    waiting_turns: int
    waiting_writes: int
    sessions: int
    unsaved_sessions: int
    failed_saves: int


class Metrics:
    """Counts while the program runs; `text` adds what can be looked up at that moment."""

    def __init__(
        self,
        *,
        servers: Callable[[], Iterable[UpstreamState]],
        load: Callable[[], Load],
        audit: AuditLog | None = None,
    ) -> None:
        self._servers = servers
        self._load = load
        self._audit = audit
        self.http_requests: Counter[Labels] = Counter()
        self.http_durations = Durations()
        self.http_under_way = 0
        self.mcp_requests: Counter[Labels] = Counter()
        self.mcp_durations = Durations()
        self.mcp_under_way = 0

    async def show(self, http: Exchange) -> None:
        """`GET /metrics`."""
        await http.answer(200, [_TYPE, _NOT_KEPT], self.text().encode())

    def text(self) -> str:
        lines: list[str] = []

        def counter(name: str, about: str, values: Mapping[Labels, float]) -> None:
            _head(lines, name, "counter", about)
            lines.extend(_line(name, labels, value) for labels, value in values.items())

        def gauge(name: str, about: str, values: Mapping[Labels, float]) -> None:
            _head(lines, name, "gauge", about)
            lines.extend(_line(name, labels, value) for labels, value in values.items())

        def histogram(name: str, about: str, durations: Durations) -> None:
            _head(lines, name, "histogram", about)
            lines.extend(durations.lines(name))

        counter("nanobot_http_requests_total", "HTTP requests that were answered.", self.http_requests)
        histogram("nanobot_http_request_duration_seconds", "Until the end of an answer.", self.http_durations)
        gauge("nanobot_http_requests_in_flight", "HTTP requests under way.", {(): self.http_under_way})
        counter("nanobot_mcp_requests_total", "MCP requests by outcome.", self.mcp_requests)
        histogram("nanobot_mcp_request_duration_seconds", "Until their result.", self.mcp_durations)
        gauge("nanobot_mcp_requests_in_flight", "MCP requests under way.", {(): self.mcp_under_way})
        states = list(self._servers())
        gauge(
            "nanobot_upstream_state",
            "1 for the state each MCP server is in.",
            {(("server", s.name), ("state", s.state)): 1 for s in states},
        )
        gauge(
            "nanobot_upstream_connections",
            "Connections to each server.",
            {(("server", s.name),): s.connections for s in states},
        )
        counter(
            "nanobot_upstream_restarts_total",
            "Connections after the first.",
            {(("server", s.name),): s.restarts for s in states},
        )
        load = self._load()
        gauge("nanobot_turns_in_flight", "Turns of conversations under way.", {(): load.turns})
        gauge("nanobot_turns_waiting", "Inputs behind those of their conversation.", {(): load.waiting_turns})
        gauge("nanobot_store_writes_waiting", "Writes not begun.", {(): load.waiting_writes})
        gauge("nanobot_sessions", "Sessions of MCP clients in memory.", {(): load.sessions})
        gauge("nanobot_sessions_unsaved", "Those with news not on record.", {(): load.unsaved_sessions})
        counter(
            "nanobot_session_save_failures_total",
            "Attempts to save some that failed.",
            {(): load.failed_saves},
        )
        if self._audit is not None:
            gauge("nanobot_audit_backlog_entries", "Entries in memory.", {(): self._audit.backlog})
            gauge(
                "nanobot_audit_backlog_bytes",
                "Bytes not delivered, in memory and on disk.",
                {(): self._audit.backlog_bytes},
            )
            counter(
                "nanobot_audit_dropped_total",
                "Entries that found no room.",
                {(): self._audit.dropped},
            )
        return "\n".join(lines) + "\n"


class Measured:
    """`inner`, its requests counted by route, method and status."""

    def __init__(self, inner: ASGIApp, metrics: Metrics) -> None:
        self._inner = inner
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        status = 0

        async def send_noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        first = scope["path"].split("/", 2)[1] if scope["path"] else ""
        route = first if first in _ROUTES else "other"
        method = scope["method"] if scope["method"] in _HTTP_METHODS else "other"
        metrics, started = self._metrics, time.monotonic()
        metrics.http_under_way += 1
        try:
            await self._inner(scope, receive, send_noting)
        finally:
            metrics.http_under_way -= 1
            metrics.http_requests[("route", route), ("method", method), ("status", str(status))] += 1
            metrics.http_durations.add((("route", route),), time.monotonic() - started)


class MeasuredService:
    """`inner`, its requests counted by method and outcome."""

    def __init__(self, inner: Service, metrics: Metrics) -> None:
        self._inner = inner
        self._metrics = metrics

    async def describe(self, caller: Caller) -> Description:
        return await self._inner.describe(caller)

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        label = method if method in _MCP_METHODS else "other"
        metrics, started, outcome = self._metrics, time.monotonic(), "cancelled"
        metrics.mcp_under_way += 1
        try:
            result = await self._inner.request(method, params, call)
            outcome = "ok"
        except Exception:
            outcome = "error"
            raise
        finally:
            metrics.mcp_under_way -= 1
            metrics.mcp_requests[("method", label), ("outcome", outcome)] += 1
            metrics.mcp_durations.add((("method", label),), time.monotonic() - started)
        return result

    def watch(self, changed: Announced) -> Callable[[], None]:
        return self._inner.watch(changed)


def _head(lines: list[str], name: str, kind: str, about: str) -> None:
    lines += (f"# HELP {name} {about}", f"# TYPE {name} {kind}")


def _line(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{name}{{{shown}}} {value}" if shown else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
