"""What `NANOBOT_DEBUG`, `--debug` and `--trace` add to the log of real programs."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.peers.mcp_http import HttpClient
from tests.peers.programs import QUICKSTART, nanobot, serving

SECRET = "canary-5f2e91c07d"
BASE64 = "QUJD" * 25
NOTES = {"command": sys.executable, "args": [str(QUICKSTART / "notes_server.py")]}
ORACLE = {
    "command": sys.executable,
    "args": [str(Path(__file__).parents[1] / "peers" / "sdk_server.py"), "stdio"],
    "env": {"HIDDEN": "${UNTOLD}"},
}


def configured(home: Path, **more: Any) -> str:
    servers = {"notes": NOTES, "oracle": ORACLE}
    document = {"mcpServers": servers, "publish": {"mcpServers": list(servers)}, **more}
    (home / "nanobot.yaml").write_text(json.dumps(document))
    return str(home / "nanobot.yaml")


def overheard(lines: list[str]) -> list[str]:
    """The sentences about messages, with their fields."""
    return [line.partition(" nanobot.overheard: ")[2] for line in lines if " nanobot.overheard: " in line]


def logged(home: Path, use: Callable[[str], object], *words: str, debug: str = "") -> list[str]:
    """What a program tells of messages while a client uses it; no secret is ever in its log."""
    with serving(*words, "-c", configured(home), home=home, UNTOLD=SECRET, NANOBOT_DEBUG=debug) as running:
        use(running.url)
    assert SECRET not in "".join(running.lines)
    return overheard(running.lines)


def called(url: str, params: Any) -> bytes:
    client = HttpClient(url)
    client.initialize()
    return client.request("tools/call", params).body


def echo(url: str) -> None:
    told = called(url, {"name": "echo", "arguments": {"text": f"{SECRET} {BASE64}"}})
    assert SECRET.encode() in told, "only the log is without it"


def steps(url: str) -> None:
    params = {"name": "steps", "arguments": {"count": 2}, "_meta": {"progressToken": 1}}
    assert b"done" in called(url, params)


def about(lines: list[str], *parts: str) -> list[str]:
    return [line for line in lines if all(part in line for part in parts)]


def test_messages_of_clients_and_servers_are_told_without_secrets_and_long_base64(tmp_path: Path) -> None:
    lines = logged(tmp_path, echo, debug="messages")
    (asked,) = about(lines, "from client", "'tools/call'", "arguments")
    (passed_on,) = about(lines, "to server", "'tools/call'", "server='oracle'")
    (answered,) = about(lines, "from server", "'tools/call'", "content")
    (told,) = about(lines, "to client", "'tools/call'", "content")
    for line in (asked, passed_on, answered, told):
        assert f"*** {BASE64[:60]}…" in line
    assert about(lines, "from server", "server='notes'", "'tools/list'", "read_note")
    number = asked.partition("number=")[2].partition(" ")[0]
    assert f"number={number} " in told, "a question and its answer have one number"


def test_a_token_that_names_a_server_tells_all_of_it_and_nothing_of_others(tmp_path: Path) -> None:
    lines = logged(tmp_path, steps, debug="oracle")
    assert len(about(lines, "from server", "notifications/progress", "server='oracle'")) == 2
    assert about(lines, "to server", "'tools/call'")
    assert not [line for line in lines if line.startswith(("from client", "to client"))]
    assert not about(lines, "server='notes'")


@pytest.mark.parametrize(("tokens", "progress", "rest"), [("progress", 4, 0), ("messages", 0, 4)])
def test_progress_is_a_topic_of_its_own(tmp_path: Path, tokens: str, progress: int, rest: int) -> None:
    lines = logged(tmp_path, steps, debug=tokens)
    assert len(about(lines, "notifications/progress")) == progress
    assert len(about(lines, "'tools/call'")) == rest


def test_ui_is_what_the_page_asks_and_is_told(tmp_path: Path) -> None:
    def post(url: str, body: Any) -> bytes:
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return answer.read()

    def chat(url: str) -> None:
        thread = json.loads(post(f"{url}/api/threads", {}))["id"]
        post(f"{url}/api/threads/{thread}/messages", {"text": f"hello {BASE64}"})

    lines = logged(tmp_path, chat, "--default-model", "demo", debug="ui")
    assert about(lines, "from page", "/messages", f"hello {BASE64[:60]}…")
    assert about(lines, "to page", "/messages")
    assert len(about(lines, " page")) == len(lines)


@pytest.mark.parametrize("before", [True, False])
def test_trace_means_all_of_it_before_and_after_the_command(tmp_path: Path, before: bool) -> None:
    words = ["call", "-c", configured(tmp_path), "oracle/echo", json.dumps({"text": SECRET})]
    words.insert(0 if before else 1, "--trace")
    ran = nanobot(*words, home=tmp_path, UNTOLD=SECRET)
    assert ran.stdout.strip() == SECRET
    assert SECRET not in ran.stderr
    assert about(overheard(ran.stderr.splitlines()), "from server", "***")
    assert "DEBUG asyncio" not in ran.stderr


@pytest.mark.parametrize(
    ("words", "variable"), [(["--debug", "targets"], ""), (["targets", "--debug"], ""), (["targets"], "1")]
)
def test_debug_can_be_asked_for_in_three_ways(tmp_path: Path, words: list[str], variable: str) -> None:
    ran = nanobot(*words, "-c", configured(tmp_path), home=tmp_path, UNTOLD=SECRET, NANOBOT_DEBUG=variable)
    assert ran.returncode == 0, ran.stderr
    assert " DEBUG " in ran.stderr
    assert not overheard(ran.stderr.splitlines())


def test_nothing_of_messages_is_told_unasked(tmp_path: Path) -> None:
    assert logged(tmp_path, echo) == []


def test_a_token_that_says_nothing_is_told(tmp_path: Path) -> None:
    ran = nanobot("targets", "-c", configured(tmp_path), home=tmp_path, UNTOLD=SECRET, NANOBOT_DEBUG="orakle")
    assert ran.returncode == 0
    assert "orakle" in ran.stderr
