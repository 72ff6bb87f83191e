"""Numbers as Prometheus would scrape them from a real program."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.peers.mcp_http import HttpClient
from tests.peers.programs import QUICKSTART, Running, serving

NOTES = {"command": sys.executable, "args": [str(QUICKSTART / "notes_server.py")]}
PEERS = Path(__file__).parents[1] / "peers"
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


def post(url: str, body: object) -> Any:
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return urllib.request.urlopen(request, timeout=20)


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


def test_sessions_that_cannot_be_saved_are_counted(tmp_path: Path) -> None:
    with serving(*publishing(tmp_path), "--metrics", home=tmp_path) as running:
        before = scrape(running)
        assert before["nanobot_session_save_failures_total"] == before["nanobot_sessions"] == 0
        with closing(sqlite3.connect(tmp_path / "nanobot" / "nanobot.db")) as database:
            database.execute("DROP TABLE mcp_sessions")
        client = HttpClient(running.url)
        client.initialize()
        client.request("tools/list")
        deadline = time.monotonic() + 20
        while not (told := scrape(running))["nanobot_session_save_failures_total"]:
            assert time.monotonic() < deadline
        assert (told["nanobot_sessions"], told["nanobot_sessions_unsaved"]) == (1, 1)
        assert told["nanobot_store_writes_waiting"] == 0


def test_turns_under_way_and_waiting_are_told(tmp_path: Path) -> None:
    hangs = {"command": sys.executable, "args": [str(PEERS / "bad_server.py"), "hangs"]}
    agent = {"model": "demo", "mcpServers": ["hangs"], "permissions": {"*": "allow"}}
    document = {
        "mcpServers": {"hangs": hangs},
        "agents": {"main": agent},
        "publish": {"entrypoint": ["main"]},
    }
    (tmp_path / "nanobot.yaml").write_text(json.dumps(document))
    with serving("-c", str(tmp_path / "nanobot.yaml"), "--metrics", home=tmp_path) as running:
        thread = json.load(post(running.url + "/api/threads", {}))["id"]
        assert scrape(running)["nanobot_turns_in_flight"] == 0
        place = f"{running.url}/api/threads/{thread}"
        with post(f"{place}/messages", {"text": "call work"}), post(f"{place}/messages", {"text": "tools"}):
            deadline = time.monotonic() + 20
            wanted = ("nanobot_turns_in_flight", "nanobot_turns_waiting")
            while [(told := scrape(running))[name] for name in wanted] != [1, 1]:
                assert time.monotonic() < deadline, told


def test_there_are_none_unless_they_are_asked_for(tmp_path: Path) -> None:
    with serving(*publishing(tmp_path), home=tmp_path) as running:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(running.url + "/metrics", timeout=20)
        with refused.value:
            assert refused.value.code == 404
