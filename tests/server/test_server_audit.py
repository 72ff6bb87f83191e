"""The audit log of a real program: what is asked over HTTP, in a file and at an endpoint."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.peers.collector import Collector, collecting
from tests.peers.mcp_http import HttpClient
from tests.peers.programs import QUICKSTART, Running, free_port, nanobot, serving

NOTES = {"command": sys.executable, "args": [str(QUICKSTART / "notes_server.py")]}
SECRET = "c4n4ry-s3cr3t-v4lue"
READ = {"name": "read_note", "arguments": {"name": "welcome", "password": SECRET}}


@dataclass
class World:
    running: Running
    file: Path
    home: Path

    def entries(self) -> list[dict[str, Any]]:
        """The lines of the file; complete once the program has ended."""
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    def of(self, call_type: str) -> list[dict[str, Any]]:
        return [entry for entry in self.entries() if entry["callType"] == call_type]

    @property
    def said(self) -> str:
        return "".join(self.running.lines)


@contextmanager
def logging_to_a_file(
    home: Path, *args: str, server: Mapping[str, Any] = NOTES, **env: str
) -> Generator[World]:
    config = home / "nanobot.yaml"
    config.write_text(json.dumps({"mcpServers": {"notes": server}, "publish": {"mcpServers": ["notes"]}}))
    file = home / "log" / "audit.jsonl"
    options = ("-c", str(config), "--exclude-built-in-agents", "--audit-log-file", str(file), *args)
    with serving(*options, home=home, **env) as running:
        yield World(running, file, home)


def test_a_conversation_over_http_leaves_one_entry_for_each_thing_asked(tmp_path: Path) -> None:
    with logging_to_a_file(tmp_path, "--audit-log-metadata", "site=lab") as world:
        client = HttpClient(world.running.url)
        client.initialize("tester", "3.1")
        client.request("tools/list")
        client.request("tools/call", READ)
        client.request("resources/read", {"uri": "note://shopping"})
        client.request("tools/call", {"name": "nope", "arguments": {}})
        client.delete()
    assert [entry["callType"] for entry in world.entries()] == [
        *("initialize", "notifications/initialized", "tools/list", "tools/call", "resources/read"),
        *("tools/call", "session/delete"),
    ]
    assert [entry["sequence"] for entry in world.entries()] == list(range(1, 8))
    call, refused = world.of("tools/call")
    assert call["callIdentifier"] == "read_note"
    assert call["server"] == "notes"
    assert call["metadata"] == {"site": "lab"}
    assert (call["clientName"], call["clientVersion"]) == ("tester", "3.1")
    assert (call["clientIP"], call["userAgent"]) == ("127.0.0.1", "test-client")
    assert (call["responseStatus"], call["requestID"]) == (200, "3")
    assert call["sessionID"] == client.session
    assert call["requestBody"]["params"]["arguments"]["name"] == "welcome"
    assert "Welcome" in json.dumps(call["responseBody"]["result"])
    assert call["createdAt"].endswith("Z")
    assert call["processingTimeMs"] >= 0
    assert call["responseHeaders"]["Content-Type"] == ["application/json"]
    assert "error" not in call
    assert "nope" in refused["error"]
    assert world.of("resources/read")[0]["callIdentifier"] == "note://shopping"
    assert world.file.stat().st_mode & 0o077 == 0


def test_requests_that_are_refused_before_they_are_read_are_entries_too(tmp_path: Path) -> None:
    with logging_to_a_file(tmp_path) as world:
        client = HttpClient(world.running.url)
        assert client.post(b'{"jsonrpc": "2.0", "id": 1, "method": ').status == 400
        assert client.post(b"\xff\xfe\x00 not json").status == 400
        assert client.post(b"{}", {"Host": "evil.example"}).status == 421
        assert (
            client.post(b'{"jsonrpc":"2.0","id":9,"method":"ping"}', {"Content-Type": "text/plain"}).status
            == 415
        )
        client.initialize()
        client.post(b'{"jsonrpc": "2.0",\n  "id": 5,\r\n  "method": "ping"}')
    cut, garbage, foreign, plain = world.of("invalid")
    assert [e["responseStatus"] for e in (cut, garbage, foreign, plain)] == [400, 400, 421, 415]
    assert all(e["error"] for e in (cut, garbage, foreign, plain))
    assert cut["requestBody"] == '{"jsonrpc": "2.0", "id": 1, "method": '
    assert world.of("ping")[0]["requestBody"]["id"] == 5


def test_a_stream_that_is_opened_is_an_entry(tmp_path: Path) -> None:
    with logging_to_a_file(tmp_path) as world:
        client = HttpClient(world.running.url)
        client.initialize()
        with client.stream() as stream:
            assert stream.status == 200
    (opened,) = world.of("sse/stream")
    assert opened["responseStatus"] == 200
    assert opened["sessionID"] == client.session


@pytest.mark.parametrize("bodies", ["redacted", "none"])
def test_no_secret_is_in_the_log_when_bodies_are_not_full(bodies: str, tmp_path: Path) -> None:
    token = {"NANOBOT_RUN_AUDIT_LOG_TOKEN": "tok-" + SECRET}
    with logging_to_a_file(tmp_path, "--audit-log-bodies", bodies, **token) as world:
        headers = {
            "Authorization": "Bearer nb-77-prod-" + SECRET,
            "Cookie": "s=" + SECRET,
            "X-My-Api-Key": SECRET,
            "X-Nanobot-Env-Weather": SECRET,
            "Mcp-Param-City": SECRET,
            "X-Forwarded-Access-Token": SECRET,
            "Referer": f"https://x.example/?token={SECRET}",
        }
        client = HttpClient(world.running.url, headers)
        client.initialize()
        client.request("tools/call", READ)
    (call,) = world.of("tools/call")
    assert call["requestHeaders"]["Authorization"] == ["[REDACTED]"]
    assert call["apiKey"] == "nb-77-prod-c"
    assert SECRET not in world.file.read_text()
    assert SECRET not in world.said
    if bodies == "redacted":
        assert call["requestBody"]["params"]["arguments"] == {"name": "welcome", "password": "***"}
    else:
        assert "requestBody" not in call


def test_a_body_that_is_too_long_is_told_by_its_digest(tmp_path: Path) -> None:
    with logging_to_a_file(tmp_path) as world:
        client = HttpClient(world.running.url)
        client.initialize()
        client.request("tools/call", {"name": "read_note", "arguments": {"name": "x" * 1_100_000}})
    (call,) = world.of("tools/call")
    assert call["requestBody"].keys() == {"truncated", "bytes", "sha256"}
    assert call["callIdentifier"] == "read_note"


def sent_to(collector: Collector, home: Path, *args: str, **env: str):
    return logging_to_a_file(home, "--audit-log-send-url", collector.url, *args, **env)


def test_entries_are_sent_and_what_is_left_at_the_end_too(tmp_path: Path) -> None:
    with collecting() as collector:
        token = {"NANOBOT_RUN_AUDIT_LOG_TOKEN": SECRET}
        with sent_to(collector, tmp_path, "--audit-log-flush-interval-seconds", "3600", **token) as world:
            client = HttpClient(world.running.url)
            client.initialize()
            client.request("ping")
    assert collector.received[0].headers["authorization"] == f"Bearer {SECRET}"
    assert [entry["callType"] for entry in collector.entries][-1] == "ping"
    assert collector.entries == world.entries()
    assert SECRET not in world.said + world.file.read_text()


def test_a_run_without_its_endpoint_leaves_the_entries_to_the_next(tmp_path: Path) -> None:
    port = free_port()
    away = ("--audit-log-send-url", f"http://127.0.0.1:{port}", "--audit-log-flush-interval-seconds", "0.1")
    with logging_to_a_file(tmp_path, *away) as world:
        HttpClient(world.running.url).initialize("first", "1")
    with collecting(port=port) as collector, logging_to_a_file(tmp_path, *away) as world:
        HttpClient(world.running.url).initialize("second", "1")
        collector.wait(lambda: len(collector.entries) >= 4)
    assert [e.get("clientName") for e in collector.entries if e["callType"] == "initialize"] == [
        "first",
        "second",
    ]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--audit-log-send-url", "ftp://x"), "http:// or https://"),
        (("--audit-log-metadata", "a=b"), "--audit-log-send-url or --audit-log-file"),
        (("--audit-log-file", "x", "--audit-log-metadata", "nothing"), "KEY=VALUE"),
        (("--audit-log-file", "x", "-a", "stdio"), "standard input"),
        (
            (
                "--audit-log-file",
                "/dev/null/x",
            ),
            "audit log cannot be written",
        ),
    ],
)
def test_settings_that_cannot_work_are_said_at_once(args: tuple[str, ...], said: str, tmp_path: Path) -> None:
    ran = nanobot("run", "--default-model", "demo", "-a", f"127.0.0.1:{free_port()}", *args, home=tmp_path)
    assert (ran.returncode, said in ran.stderr) == (2, True), ran.stderr
    assert "Traceback" not in ran.stderr
