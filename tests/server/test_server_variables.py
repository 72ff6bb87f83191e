"""Declared variables without a value: the client is told which, before a session begins."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.peers.programs import nanobot, serving

DECLARED = """\
env:
  TOKEN: What opens the door
  REGION: {description: Where, optional: true, default: eu, options: [eu, us], sensitive: false}
  SIZE: {description: How big, default: m, options: [s, m], sensitive: false}
"""


def initialize(url: str, **headers: str) -> dict[str, Any]:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    sent = {"Content-Type": "application/json", "Accept": "application/json", **headers}
    request = urllib.request.Request(url + "/mcp", json.dumps(message).encode(), sent)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer) | {"session": answer.headers.get("Mcp-Session-Id")}
    except urllib.error.HTTPError as e:
        with e:
            return json.load(e)


def test_all_that_is_missing_is_told_at_once_and_may_come_with_the_request(tmp_path: Path) -> None:
    (tmp_path / "nanobot.yaml").write_text(DECLARED)
    config = ("-c", str(tmp_path / "nanobot.yaml"))
    with serving(*config, home=tmp_path) as running:
        refusal = initialize(running.url)["error"]
        assert refusal["code"] == -32602
        assert "TOKEN, SIZE" in refusal["message"]
        assert refusal["data"]["missingEnv"] == [
            {"name": "TOKEN", "description": "What opens the door"},
            {"name": "SIZE", "description": "How big", "default": "m", "options": ["s", "m"]},
        ]
        given = {"X-Nanobot-Env-TOKEN": "t", "X-Nanobot-Env-SIZE": "m"}
        assert initialize(running.url, **given)["session"]
        refusal = initialize(running.url, **given, **{"X-Nanobot-Env-REGION": "xx"})["error"]
        assert refusal["data"] == {"invalidEnv": [{"name": "REGION", "options": ["eu", "us"]}]}
    with serving(*config, home=tmp_path, TOKEN="t", SIZE="s") as running:
        assert initialize(running.url)["session"]


def test_a_value_that_no_header_could_carry_on_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "nanobot.yaml").write_text(DECLARED)
    with serving("-c", str(tmp_path / "nanobot.yaml"), home=tmp_path, TOKEN="t", SIZE="s") as running:
        for value, said in (
            ("x" * 9000, "9000 bytes; at most 6144 are passed on"),
            ("\xe9", "printable ASCII"),
        ):
            refusal = initialize(running.url, **{"X-Nanobot-Env-Token": value})["error"]
            assert refusal["code"] == -32602
            assert refusal["message"].startswith("header x-nanobot-env-token: ")
            assert said in refusal["message"]
        assert initialize(running.url, **{"X-Nanobot-Env-Token": "x" * 6000})["session"]


def test_the_check_warns_with_the_place(tmp_path: Path) -> None:
    (tmp_path / "nanobot.yaml").write_text(DECLARED)
    checked = nanobot("config", "check", "-c", "./nanobot.yaml", home=tmp_path, REGION="xx", SIZE="s")
    assert checked.returncode == 0
    assert "nanobot.yaml:2:" in checked.stderr
    assert "'TOKEN' (What opens the door) has no value yet" in checked.stderr
    assert "'REGION' is not one of eu, us" in checked.stderr
    assert "SIZE" not in checked.stderr
