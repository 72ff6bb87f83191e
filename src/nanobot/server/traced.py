"""The application with a span around each HTTP request. Composed only while tracing is on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nanobot.telemetry import CONTEXT_KEYS, Tracer

UNTRACED: Final = ("/mcp/ui", "/mcp/chat", "/metrics")
"""Paths that are asked all the time and tell nothing; so is that of health."""

_HEADERS: Final = {key.encode(): key for key in CONTEXT_KEYS}


class Traced:
    """`inner`, each request but those for the paths `untraced` being a span.

    The id of its trace stands in `scope["state"]["trace_id"]`.
    """

    def __init__(self, inner: ASGIApp, tracer: Tracer, *, untraced: Iterable[str]) -> None:
        self._inner = inner
        self._tracer = tracer
        self._untraced = frozenset(untraced)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope.get("path", "")
        if scope["type"] != "http" or path in self._untraced:
            await self._inner(scope, receive, send)
            return
        caller = {
            _HEADERS[name]: value.decode("latin-1") for name, value in scope["headers"] if name in _HEADERS
        }
        # The path only: a query may hold a code or a token.
        attributes = {"http.request.method": scope["method"], "url.path": path[:1024]}
        with self._tracer.span("nanobot/http", "server", attributes, caller=caller) as span:
            scope.setdefault("state", {})["trace_id"] = span.trace_id

            async def send_noting(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.put("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.fail(f"HTTP status {message['status']}")
                await send(message)

            await self._inner(scope, receive, send_noting)
