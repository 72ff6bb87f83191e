"""Numbers as Prometheus would scrape them from a real program."""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.peers.mcp_http import HttpClient
from tests.peers.programs import QUICKSTART, Running, serving

NOTES = {"command": sys.executable, "args": [str(QUICKSTART / "notes_server.py")]}
LINE = re.compile(r'[a-z_]+(\{([a-z]+="([^"\\]|\\.)*",?)+\})? [0-9.e+-]+')


def publishing(home: Path) -> tuple[str, ...]:
    config = home / "nanobot.yaml"
    config.write_text(json.dumps({"mcpServers": {"notes": NOTES}, "publish": {"mcpServers": ["notes"]}}))
    return "-c", str(config), "--exclude-built-in-agents"


def scrape(nanobot: Running) -> dict[str, float]:
    with urllib.request.urlopen(nanobot.url + "/metrics", timeout=20) as answer:
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = answer.read().decode().splitlines()
    values = [line for line in lines if not line.startswith("#")]
    assert all(LINE.fullmatch(line) for line in values), values
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in values)}


def test_requests_durations_states_and_the_audit_backlog_are_told(tmp_path: Path) -> None:
    audit = ("--audit-log-file", str(tmp_path / "audit.jsonl"))
    with serving(*publishing(tmp_path), "--metrics", *audit, home=tmp_path) as running:
        client = HttpClient(running.url)
        client.initialize()
        client.request("tools/call", {"name": "list_notes", "arguments": {}})
        client.request("tools/call", {"name": "nope", "arguments": {}})
        client.request("x" * 50)
        told = scrape(running)
    assert told['nanobot_mcp_requests_total{method="tools/call",outcome="ok"}'] == 1
    assert told['nanobot_mcp_requests_total{method="tools/call",outcome="error"}'] == 1
    assert told['nanobot_mcp_requests_total{method="other",outcome="error"}'] == 1
    assert told['nanobot_mcp_request_duration_seconds_count{method="tools/call"}'] == 2
    assert told['nanobot_mcp_request_duration_seconds_bucket{method="tools/call",le="+Inf"}'] == 2
    assert told['nanobot_http_requests_total{route="mcp",method="POST",status="200"}'] == 4
    assert told['nanobot_upstream_state{server="notes",state="ready"}'] == 1
    assert told['nanobot_upstream_restarts_total{server="notes"}'] == 0
    assert told["nanobot_http_requests_in_flight"] == 1, "the scrape itself"
    assert told["nanobot_audit_dropped_total"] == 0
    assert "nanobot_audit_backlog_bytes" in told


def test_there_are_none_unless_they_are_asked_for(tmp_path: Path) -> None:
    with serving(*publishing(tmp_path), home=tmp_path) as running:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(running.url + "/metrics", timeout=20)
        with refused.value:
            assert refused.value.code == 404
