"""Traces of the program, by OpenTelemetry when it is on; nothing of it is imported while it is off.

On when `OTEL_TRACES_EXPORTER`, `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is set;
`OTEL_TRACES_EXPORTER=none` switches it off whatever else is set. Other parts know `Tracer` alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast

import anyio
from anyio import to_thread

from nanobot import DISTRIBUTION, __version__
from nanobot.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span as OtelSpan

CONTEXT_KEYS: Final = ("traceparent", "tracestate", "baggage")
"""Under these a trace travels, in HTTP headers and in `_meta` alike."""
FLUSH_S: Final = 5.0
"""Time for sending the last spans at the end."""
MAX_CARRIED: Final = 8192
"""A longer `tracestate` or `baggage` of a client is not looked at."""

Kind = Literal["server", "client"]
Carrier = Mapping[str, str]

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


class Span(Protocol):
    """Work under way. Leaving its block with an exception marks it as failed, once."""

    @property
    def trace_id(self) -> str: ...

    def put(self, name: str, value: str | int) -> None: ...

    def fail(self, reason: str) -> None: ...


class Tracer(Protocol):
    """Makes spans. Inside its block a span is the parent of those that are begun there."""

    def span(
        self, name: str, kind: Kind, attributes: Mapping[str, str], *, caller: Carrier | None = None
    ) -> AbstractContextManager[Span]:
        """`caller` is what a peer said of its own trace: continued if peers are trusted, else only linked."""
        ...

    def carrier(self) -> dict[str, str]:
        """What tells a peer which span is under way."""
        ...


def trace_id_in(traceparent: str) -> str:
    """The trace id in a W3C `traceparent`; "" if it is none."""
    match = _TRACEPARENT.fullmatch(traceparent)
    return match[1] if match and match[1].strip("0") else ""


def wanted_exporters(env: Mapping[str, str]) -> list[str]:
    """Names of the exporters that the environment asks for; none: tracing is off."""
    names = [name.strip().lower() for name in env.get("OTEL_TRACES_EXPORTER", "").split(",")]
    names = [name for name in names if name]
    if "none" in names:
        return []
    return names or (["otlp"] if _endpoint(env) else [])


@asynccontextmanager
async def open_tracer(env: Mapping[str, str], *, trusts_peers: bool) -> AsyncGenerator[Tracer | None]:
    """The tracer of this process, None while tracing is off. Leaving sends what is left.

    Raises `ConfigError` if the packages are missing or the environment asks for an exporter we do not have.
    """
    names = wanted_exporters(env)
    if not names:
        yield None
        return
    try:
        provider = _provider(names, env)
    except ModuleNotFoundError as e:
        raise ConfigError(
            f"Tracing needs {e.name}: `uv tool install '{DISTRIBUTION}[telemetry]'`, or set "
            f"OTEL_TRACES_EXPORTER=none."
        ) from e
    try:
        yield _OtelTracer(provider, trusts_peers=trusts_peers)
    finally:
        with anyio.move_on_after(FLUSH_S, shield=True):
            await to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)


def _endpoint(env: Mapping[str, str]) -> str:
    """Where spans go by OTLP; "" if the environment does not say."""
    whole = env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip()
    base = env.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip().rstrip("/")
    return whole or (f"{base}/v1/traces" if base else "")


def _provider(exporters: list[str], env: Mapping[str, str]) -> TracerProvider:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # Resource.create adds OTEL_RESOURCE_ATTRIBUTES by itself, but what it is given wins over them.
    service = {
        "service.name": env.get("OTEL_SERVICE_NAME", "").strip()
        or _resource_attribute(env, "service.name")
        or "nanobot",
        "service.version": _resource_attribute(env, "service.version") or __version__,
    }
    provider = TracerProvider(resource=Resource.create(service), shutdown_on_exit=False)
    for name in exporters:
        provider.add_span_processor(BatchSpanProcessor(_exporter(name, env)))
    return provider


def _exporter(name: str, env: Mapping[str, str]) -> SpanExporter:
    match name:
        case "otlp":
            protocol = env.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or env.get("OTEL_EXPORTER_OTLP_PROTOCOL")
            if protocol and protocol.strip() != "http/protobuf":
                raise ConfigError(
                    f"Spans are sent as http/protobuf; OTLP over {protocol!r} is not supported."
                )
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            return OTLPSpanExporter(endpoint=_endpoint(env) or None)
        case "console":
            from opentelemetry.sdk.trace.export import ConsoleSpanExporter

            return ConsoleSpanExporter(out=sys.stderr)
        case _:
            raise ConfigError(f"OTEL_TRACES_EXPORTER names {name!r}; known are otlp, console and none.")


def _resource_attribute(env: Mapping[str, str], wanted: str) -> str:
    for pair in env.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        name, _, value = pair.partition("=")
        if name.strip() == wanted:
            return value.strip()
    return ""


class _OtelTracer:
    """Uses its own provider, never the one of the process: a library must not find it by chance."""

    def __init__(self, provider: TracerProvider, *, trusts_peers: bool) -> None:
        from opentelemetry.baggage.propagation import W3CBaggagePropagator
        from opentelemetry.propagators.composite import CompositePropagator
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = provider.get_tracer("nanobot", __version__)
        self._trusts_peers = trusts_peers
        self._propagator = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])

    @contextmanager
    def span(
        self, name: str, kind: Kind, attributes: Mapping[str, str], *, caller: Carrier | None = None
    ) -> Generator[Span]:
        from opentelemetry import context, trace

        parent, links = None, list[trace.Link]()
        theirs = self._theirs(caller) if caller else None
        if theirs is not None:
            if self._trusts_peers:
                parent = theirs
            else:
                links.append(trace.Link(trace.get_current_span(theirs).get_span_context()))
        span = self._tracer.start_span(
            name,
            context=parent,
            kind=trace.SpanKind.SERVER if kind == "server" else trace.SpanKind.CLIENT,
            attributes=dict(attributes),
            links=links,
        )
        token = context.attach(trace.set_span_in_context(span, parent))
        ours = _OtelSpan(span)
        try:
            yield ours
        except Exception as e:
            ours.record(e)
            raise
        finally:
            context.detach(token)
            span.end()

    def carrier(self) -> dict[str, str]:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return carrier

    def _theirs(self, caller: Carrier) -> Context | None:
        """The context a peer named; None unless it names a trace."""
        from opentelemetry import trace

        said = {k: v for k, v in caller.items() if k in CONTEXT_KEYS and len(v) <= MAX_CARRIED}
        # Begun from nothing, so that a sentence that means nothing is not taken for our own current span.
        found = self._propagator.extract(said, context=cast("Any", {}))
        return found if trace.get_current_span(found).get_span_context().is_valid else None


class _OtelSpan:
    __slots__ = ("_has_failed", "_span")

    def __init__(self, span: OtelSpan) -> None:
        self._span = span
        self._has_failed = False

    @property
    def trace_id(self) -> str:
        return f"{self._span.get_span_context().trace_id:032x}"

    def put(self, name: str, value: str | int) -> None:
        self._span.set_attribute(name, value)

    def fail(self, reason: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        self._has_failed = True
        self._span.set_status(Status(StatusCode.ERROR, reason))

    def record(self, error: Exception) -> None:
        """Kind and code of `error`, never its text: a server may have put anything into that."""
        if self._has_failed:
            return
        kind = type(error).__name__
        code = str(getattr(error, "rpc_code", "") or getattr(error, "code", ""))
        self._span.add_event("exception", {"exception.type": kind, "error.code": code})
        self.fail(f"{kind} {code}".rstrip())
