"""Where clients reach us: what a trusted proxy says, else the configured address, else the request's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send


class PublicUrl(Protocol):
    """Scheme and host without a `/` at the end."""

    def __call__(self, scope: Scope) -> str: ...


def public_url_of(configured: str) -> PublicUrl:
    def find(scope: Scope) -> str:
        state: Mapping[str, Any] = scope.get("state", {})
        if configured and "forwarded" not in state:
            return configured
        # The gate has let only hosts pass that mean this server.
        host = next((value for name, value in scope["headers"] if name == b"host"), b"localhost")
        return f"{scope['scheme']}://{host.decode('latin-1').lower()}"

    return find


class OverTls:
    """`inner`, for which requests to the host of an https address came over TLS: a proxy took it off.

    Whoever lies about the host gains cookies that are sent over TLS only.
    """

    def __init__(self, inner: ASGIApp, public_url: str) -> None:
        self._inner = inner
        self._host = public_url.removeprefix("https://").encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (b"host", self._host) in scope["headers"]:
            scope["scheme"] = "https"
        await self._inner(scope, receive, send)
