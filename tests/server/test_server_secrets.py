"""What callers bring along stays theirs, however often the servers behind us repeat it."""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.peers.collector import Collector, collecting
from tests.peers.mcp_http import HttpClient, Reply
from tests.peers.programs import Running, clean_env, free_port, serving, started

ECHO = Path(__file__).parents[1] / "peers" / "echoing_server.py"
OPERATORS = "CANARY-of-the-operator"
TEAM = 'CANARY/of a"team'
CALLERS = ("CANARY-ann.0001", "CANARY-bob.0002", "CANARY-eve/0003+=")
TOOLS = ("own", "error", "status", "forbid", "redirect", "junk", "log", "die")
STARTED = ("pipe_", "web_")
"""Prefixes of the servers that are started here: what those were sent, they print."""


@dataclass
class World:
    running: Running
    collector: Collector
    audit: Path


@contextmanager
def echoing(home: Path, era: str) -> Generator[World]:
    """A program that shows all it can, before a server of each kind that repeats all it hears."""
    port = free_port()
    personal = {"Authorization": "Bearer ${http:bearer-token}", "X-Team": "${TEAM}"}
    child = {"command": sys.executable, "sandbox": "off", "env": {"ECHO_SECRET": "${OURS}"}}
    servers: dict[str, Any] = {
        "far": {"url": f"http://127.0.0.1:{port}/mcp", "headers": personal},
        "web": {**child, "args": [str(ECHO), era, "${port:mcp}"], "headers": personal},
        "pipe": {**child, "args": [str(ECHO), era, "stdio"]},
    }
    servers["web"]["url"] = "http://127.0.0.1:${port:mcp}/mcp"
    servers = {n: {**s, "toolPrefix": f"{n}_", "protocol": era} for n, s in servers.items()}
    document = {
        "env": {"TEAM": {"optional": True, "default": "no team"}},
        "mcpServers": servers,
        "publish": {"mcpServers": list(servers)},
    }
    config = home / "nanobot.yaml"
    config.write_text(json.dumps(document))
    audit = home / "audit.jsonl"
    far = ["sh", "-c", f"echo at http://here >&2; exec {sys.executable} {ECHO} {era} {port}"]
    options = ("--debug", "-c", str(config), "--exclude-built-in-agents", "--audit-log-file", str(audit))
    with (
        started(far, env=clean_env(home), cwd=home, announces=r"at (http://here)"),
        collecting(lambda request: 200) as collector,
        serving(
            *options,
            home=home,
            OURS=OPERATORS,
            NANOBOT_DEBUG="messages,progress",
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        ) as running,
    ):
        yield World(running, collector, audit)


def call(tool: str, token: str) -> dict[str, Any]:
    return {"name": tool, "arguments": {"note": token}}


def modern_call(client: HttpClient, tool: str, token: str) -> Reply:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/logLevel": "debug",
    }
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {**call(tool, token), "_meta": meta},
    }
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool}
    return client.post(json.dumps(message).encode(), headers)


def everybody_asks(url: str) -> Iterator[bytes]:
    """Each caller in turn uses every tool of every server in both eras; everything that is answered."""
    with ExitStack() as open_streams:
        listening = HttpClient(url, {"Authorization": "Bearer CANARY-of-who-listens"})
        listening.initialize()
        yield listening.request("logging/setLevel", {"level": "debug"}).body
        heard = open_streams.enter_context(heard_by(listening))
        for token in CALLERS:
            headers = {"Authorization": f"Bearer {token}", "X-Nanobot-Env-Team": TEAM}
            old, new = HttpClient(url, headers), HttpClient(url, headers)
            yield old.initialize().body
            yield old.request("logging/setLevel", {"level": "debug"}).body
            yield old.request("tools/list").body
            for server in ("far_", *STARTED):
                for tool in TOOLS if server in STARTED else TOOLS[:-1]:
                    yield old.request("tools/call", call(server + tool, token)).body
                    yield modern_call(new, server + tool, token).body
        stranger = HttpClient(url)
        yield stranger.initialize().body
        for server in ("far_", *STARTED):
            for tool in TOOLS[:-1]:
                yield stranger.request("tools/call", {"name": server + tool, "arguments": {}}).body
        for path in ("/api/servers", "/healthz", "/api/version"):
            yield HttpClient(url, path=path).get().body
    yield b"".join(heard)


@contextmanager
def heard_by(client: HttpClient) -> Generator[list[bytes]]:
    """What arrives on the stream of a client while the block runs."""
    heard: list[bytes] = []
    with client.stream() as stream:

        def read() -> None:
            with suppress(OSError, ValueError, http.client.HTTPException):
                while piece := stream.read1():
                    heard.append(piece)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        yield heard
        client.delete()  # ends the stream
        reader.join(20)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_r21_what_servers_were_sent_for_a_caller_is_told_to_nobody(era: str, tmp_path: Path) -> None:
    with echoing(tmp_path, era) as world:
        answers = list(everybody_asks(world.running.url))
    traces = b"".join(request.body for request in world.collector.accepted)
    log = "".join(world.running.lines)
    audit = world.audit.read_text()
    everything = {
        "answers": b"\n".join(answers).decode(),
        "traces": traces.decode("latin-1"),
        "log": log,
        "audit": audit,
    }
    for secret in (*CALLERS, OPERATORS, TEAM):
        for spelling in {secret, json.dumps(secret)[1:-1], quote(secret), quote(secret, safe="")}:
            found = {place for place, text in everything.items() if spelling in text}
            assert not found, (
                spelling,
                [line for line in everything[min(found)].splitlines() if spelling in line][:3],
            )
    # It was told, or nothing was shown by that.
    assert "no: ***" in everything["answers"]
    assert "redirects to http://elsewhere.invalid/***" in everything["answers"]
    assert "mcp stderr" in log
    assert "I was sent ***" in log
    assert "mcp log" in log
    assert "from server" in log
    assert "tools/call" in audit
    assert traces
