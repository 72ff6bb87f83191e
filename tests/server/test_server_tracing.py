"""Traces of a real program, as an OTLP collector and an MCP server behind it see them."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from tests.peers.collector import Collector, collecting
from tests.peers.mcp_http import HttpClient
from tests.peers.programs import Running, nanobot, serving
from tests.peers.recording_mcp import RecordingServer, recording

SECRET = "c4n4ry-s3cr3t-v4lue"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
OTHER_TRACE = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
OTHER = f"00-{OTHER_TRACE}-bbbbbbbbbbbbbbbb-01"


@dataclass
class World:
    running: Running
    server: RecordingServer
    collector: Collector
    home: Path

    def spans(self) -> list[Span]:
        """All spans that arrived; complete once the program has ended."""
        return [
            span
            for sent in self.requests()
            for resource in sent.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def requests(self) -> list[ExportTraceServiceRequest]:
        return [ExportTraceServiceRequest.FromString(request.body) for request in self.collector.accepted]

    def one(self, name: str, **attributes: str) -> Span:
        """The one span of this name with these attributes (`__` for a dot)."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        found = [s for s in self.spans() if s.name == name and wanted.items() <= told(s).items()]
        assert len(found) == 1, [(s.name, told(s)) for s in self.spans()]
        return found[0]


def told(span: Span) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


@contextmanager
def traced(home: Path, *args: str, trust: bool = False, **env: str) -> Generator[World]:
    with recording() as server, collecting(lambda request: 200) as collector:
        config = home / "nanobot.yaml"
        document = {
            "mcpServers": {"notes": {"url": server.url, "protocol": "legacy"}},
            "publish": {"mcpServers": ["notes"], "name": "mine"},
            "server": {"trustTraceContext": trust},
        }
        config.write_text(json.dumps(document))
        on = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **env}
        with serving("-c", str(config), "--exclude-built-in-agents", *args, home=home, **on) as running:
            yield World(running, server, collector, home)


def call(world: World, *, meta: Any = None, header: str = "", **arguments: Any) -> HttpClient:
    client = HttpClient(world.running.url, {"traceparent": header} if header else None)
    client.initialize()
    params = {"name": "note", "arguments": arguments, **({"_meta": meta} if meta else {})}
    client.request("tools/call", params)
    return client


def test_a_call_is_a_trace_from_the_client_to_the_server_behind(tmp_path: Path) -> None:
    with traced(tmp_path, OTEL_RESOURCE_ATTRIBUTES="deployment.environment=lab") as world:
        call(world, password=SECRET)
    asked = world.one("tools/call")
    sent = world.one("mcp.tools.call")
    http = next(s for s in world.spans() if s.span_id == asked.parent_span_id)
    assert http.name == "nanobot/http"
    assert http.parent_span_id == b""
    assert told(http)["http.response.status_code"] == 200
    assert sent.parent_span_id == asked.span_id
    assert http.trace_id == asked.trace_id == sent.trace_id
    assert (http.kind, asked.kind, sent.kind) == (
        Span.SPAN_KIND_SERVER,
        Span.SPAN_KIND_SERVER,
        Span.SPAN_KIND_CLIENT,
    )
    assert told(sent) == {"mcp.server.name": "notes", "mcp.tool.name": "note"}
    assert world.one("mcp.tools.list").kind == Span.SPAN_KIND_CLIENT
    headers, params = world.server.calls[0]
    assert headers["traceparent"] == params["_meta"]["traceparent"]
    assert headers["traceparent"].startswith(f"00-{sent.trace_id.hex()}-{sent.span_id.hex()}-")
    (about,) = world.requests()[0].resource_spans
    resource = {a.key: a.value.string_value for a in about.resource.attributes}
    assert (resource["service.name"], resource["deployment.environment"]) == ("nanobot", "lab")
    assert resource["service.version"]
    assert all(SECRET.encode() not in request.body for request in world.collector.received)


def test_the_trace_of_a_client_that_is_not_trusted_is_linked_to_only(tmp_path: Path) -> None:
    with traced(tmp_path) as world:
        call(world, header=PARENT, meta={"traceparent": OTHER, "baggage": "user=eve", "mine": 1})
    asked = world.one("tools/call")
    assert asked.trace_id.hex() not in (TRACE, OTHER_TRACE)
    assert [link.trace_id.hex() for link in asked.links] == [OTHER_TRACE]
    http = next(s for s in world.spans() if s.span_id == asked.parent_span_id)
    assert [link.trace_id.hex() for link in http.links] == [TRACE]
    headers, params = world.server.calls[0]
    assert asked.trace_id.hex() in headers["traceparent"]
    assert "baggage" not in headers
    assert params["_meta"].keys() >= {"mine", "traceparent"}
    assert "baggage" not in params["_meta"]


def test_the_trace_of_a_trusted_client_goes_on_and_meta_wins_over_the_header(tmp_path: Path) -> None:
    with traced(tmp_path, trust=True) as world:
        call(world, header=PARENT, meta={"traceparent": OTHER, "baggage": "user=eve"})
        call(world, header=PARENT)
    first, second = (params["_meta"] for _, params in world.server.calls)
    assert OTHER_TRACE in first["traceparent"]
    assert first["baggage"] == "user=eve"
    assert TRACE in second["traceparent"]


def test_a_failure_is_recorded_once_and_without_what_the_server_said(tmp_path: Path) -> None:
    with traced(tmp_path) as world:
        call(world, fail=True)
    for span in (world.one("mcp.tools.call"), world.one("tools/call")):
        assert span.status.code == Status.STATUS_CODE_ERROR
        assert [event.name for event in span.events] == ["exception"]
    secret = world.server.secret.encode()
    assert all(secret not in request.body for request in world.collector.received)


def test_the_audit_log_names_the_trace_and_health_has_none(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with traced(tmp_path, "--audit-log-file", str(file), "--healthz-path", "alive") as world:
        call(world)
        for path in ("/alive", "/healthz", "/mcp/ui"):
            HttpClient(world.running.url, path=path).post(b"{}")
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    asked = world.one("tools/call")
    assert next(e for e in entries if e["callType"] == "tools/call")["traceID"] == asked.trace_id.hex()
    paths = {told(s)["url.path"] for s in world.spans() if s.name == "nanobot/http"}
    assert paths == {"/mcp"}


@pytest.mark.parametrize("off", [" None ", "otlp,none"])
def test_none_switches_it_off_and_the_trace_passes_as_it_is(off: str, tmp_path: Path) -> None:
    with traced(tmp_path, OTEL_TRACES_EXPORTER=off) as world:
        call(world, meta={"traceparent": OTHER})
        assert world.collector.received == []
    assert world.collector.received == []
    headers, params = world.server.calls[0]
    assert params["_meta"]["traceparent"] == OTHER
    assert "traceparent" not in headers


def test_a_collector_that_is_away_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with traced(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9") as world:
        call(world)
    assert world.running.process.returncode == 0


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "known are otlp, console and none"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http/protobuf"),
    ],
)
def test_what_we_cannot_do_is_said_at_once(env: dict[str, str], said: str, tmp_path: Path) -> None:
    ran = nanobot("targets", "--default-model", "demo", home=tmp_path, **env)
    assert (ran.returncode, said in ran.stderr) == (2, True), ran.stderr
