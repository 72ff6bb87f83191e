"""HTTP requests that tell their receiver which trace they belong to. Composed only while tracing is on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from nanobot.addresses import AddressRules
from nanobot.http import MAX_BODY, Http, HttpAnswer, HttpStream
from nanobot.telemetry import Tracer


class TracedHttp(Http):
    """`inner`, its requests carrying the span under way. For MCP servers: others need not know our traces."""

    def __init__(self, inner: Http, tracer: Tracer) -> None:
        self._inner = inner
        self._tracer = tracer

    def guarded(self, rules: AddressRules) -> Http:
        return TracedHttp(self._inner.guarded(rules), self._tracer)

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 30.0,
        max_bytes: int = MAX_BODY,
    ) -> HttpAnswer:
        return await self._inner.request(
            method, url, headers=self._telling(headers), body=body, timeout_s=timeout_s, max_bytes=max_bytes
        )

    def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        idle_s: float | None = 90.0,
    ) -> AbstractAsyncContextManager[HttpStream]:
        return self._inner.stream(method, url, headers=self._telling(headers), body=body, idle_s=idle_s)

    def _telling(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        return {**(headers or {}), **self._tracer.carrier()}
