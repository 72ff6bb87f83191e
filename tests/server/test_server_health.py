"""Health as a monitor sees it: a real program, its servers well, dead, or not there yet."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.peers.programs import QUICKSTART, Running, nanobot, serving

NOTES = {"command": sys.executable, "args": [str(QUICKSTART / "notes_server.py")]}
DEAD = {"command": "false"}
HANGS = {"command": "sleep", "args": ["60"]}


def publishing(home: Path, **servers: Mapping[str, Any]) -> tuple[str, ...]:
    """Arguments that use a configuration which publishes these servers and no agent."""
    config = home / "nanobot.yaml"
    config.write_text(json.dumps({"mcpServers": servers, "publish": {"mcpServers": list(servers)}}))
    return "-c", str(config), "--exclude-built-in-agents"


def get(nanobot: Running, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(nanobot.url + path, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        with e:
            return e.code, e.read().decode()


def settled(nanobot: Running, path: str, *waiting: int) -> tuple[int, str]:
    """The answer once it is none of the statuses `waiting`, for which a monitor would ask again."""
    deadline = time.monotonic() + 20
    while (answer := get(nanobot, path))[0] in waiting and time.monotonic() < deadline:
        pass
    return answer


def failing(nanobot: Running, server: str) -> dict[str, Any]:
    """The body of the answer once health is failing and the lists are, too, because of `server`.

    A state fails a moment before whoever waits for a list hears of it.
    """
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        status, text = get(nanobot, "/healthz")
        body = json.loads(text)
        if (status, body["status"]) == (503, "failing") and server in body["checks"]["catalog"]:
            return body
    raise AssertionError(f"health never failed; at last {status} {text}")


def test_all_is_well_with_one_server_of_two(tmp_path: Path) -> None:
    with serving(*publishing(tmp_path, notes=NOTES, dead=DEAD), home=tmp_path) as running:
        status, text = settled(running, "/healthz", 503)
        body = json.loads(text)
        assert (status, body["status"]) == (200, "ok")
        assert body["checks"]["database"] == body["checks"]["config"] == body["checks"]["catalog"] == "ok"
        assert body["checks"]["servers"]["notes"] == "ready"
        assert get(running, "/healthz", "HEAD") == (200, "")


def test_failing_when_nothing_of_what_is_published_is_there(tmp_path: Path) -> None:
    with serving(*publishing(tmp_path, dead=DEAD), home=tmp_path) as running:
        body = failing(running, "dead")
        assert body["checks"]["servers"].keys() == {"dead"}
        assert get(running, "/healthz?live=1")[0] == 200


def test_starting_while_no_server_has_answered(tmp_path: Path) -> None:
    with serving(*publishing(tmp_path, slow=HANGS), home=tmp_path) as running:
        status, text = get(running, "/healthz")
        assert (status, json.loads(text)["status"]) == (503, "starting")


@pytest.mark.parametrize("written", ["ready", "/ready"])
def test_a_second_path_with_the_statuses_of_old_monitors(written: str, tmp_path: Path) -> None:
    legacy = {"NANOBOT_HEALTHZ_LEGACY_STATUS": "true"}
    well = publishing(tmp_path, notes=NOTES)
    with serving(*well, "--healthz-path", written, home=tmp_path, **legacy) as running:
        assert settled(running, "/ready", 425, 500) == (200, "")
        assert get(running, "/healthz") == (200, "")


def test_the_statuses_of_old_monitors_while_starting_and_when_failing(tmp_path: Path) -> None:
    legacy = {"NANOBOT_HEALTHZ_LEGACY_STATUS": "true", "NANOBOT_RUN_HEALTHZ_PATH": "ready"}
    with serving(*publishing(tmp_path, slow=HANGS), home=tmp_path, **legacy) as running:
        assert get(running, "/ready") == (425, "waiting for startup")
    with serving(*publishing(tmp_path, dead=DEAD), home=tmp_path, **legacy) as running:
        status, text = settled(running, "/ready", 425)
        assert status == 500
        assert "dead" in text


def test_the_check_can_be_switched_off(tmp_path: Path) -> None:
    off = {"NANOBOT_DISABLE_HEALTH_CHECKER": "true"}
    with serving(*publishing(tmp_path, slow=HANGS), home=tmp_path, **off) as running:
        assert get(running, "/healthz")[0] == 200


@pytest.mark.parametrize("path", ["/", "/mcp", "api/health", "a b"])
def test_a_path_that_cannot_be_used_is_said_at_once(path: str, tmp_path: Path) -> None:
    ran = nanobot("run", "--default-model", "demo", "--healthz-path", path, home=tmp_path)
    assert (ran.returncode, repr(path) in ran.stderr) == (2, True), ran.stderr


def test_the_states_of_servers_are_shown_by_the_api_and_by_targets(tmp_path: Path) -> None:
    args = publishing(tmp_path, notes=NOTES, dead=DEAD)
    with serving(*args, home=tmp_path) as running:
        settled(running, "/healthz", 503)
        listed = json.loads(get(running, "/api/servers")[1])["servers"]
        notes = next(one for one in listed if one["name"] == "notes")
        assert (notes["kind"], notes["state"], notes["era"]) == ("stdio", "ready", "legacy")
        assert notes["tools"] == 3
        assert (notes["lastError"], notes["restarts"]) == (None, 0)
        assert notes["serverInfo"]["name"]
    ran = nanobot("targets", "--status", "-o", "json", *args, home=tmp_path)
    shown = {one["name"]: one for one in json.loads(ran.stdout)}
    assert shown["notes"].keys() == notes.keys()
    assert (shown["notes"]["state"], shown["notes"]["tools"]) == ("ready", 3)
    assert (shown["dead"]["state"], shown["dead"]["tools"]) == ("backoff", None)
    table = nanobot("targets", "--status", "-s", "dead", "-s", "nowhere", *args, home=tmp_path)
    assert table.stdout.splitlines()[1].split()[:3] == ["dead", "stdio", "backoff"]
    assert "nowhere: there is no such server" in table.stderr
