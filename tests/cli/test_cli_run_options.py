"""Options of `nanobot run` and those that commands share, each by what it changes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.peers.mcp_http import HttpClient
from tests.peers.programs import QUICKSTART, nanobot, serving

NOTES = {"command": sys.executable, "args": [str(QUICKSTART / "notes_server.py")]}
CHANGING = """
import json, pathlib, sys
tools = pathlib.Path(sys.argv[1])
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    if m["method"] == "initialize":
        info = {"name": "changing", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif m["method"] == "tools/list":
        names = tools.read_text().split()
        result = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in names]}
    else:
        result = {"content": [{"type": "text", "text": "called " + m["params"]["name"]}]}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}), flush=True)
"""


def configured(home: Path, **document: Any) -> str:
    (home / "nanobot.yaml").write_text(json.dumps(document))
    return str(home / "nanobot.yaml")


def test_tools_that_change_without_a_word_are_found_if_they_are_fetched_before_each_call(
    tmp_path: Path,
) -> None:
    (tmp_path / "server.py").write_text(CHANGING)
    names = tmp_path / "names"
    changing = {
        "command": sys.executable,
        "args": [str(tmp_path / "server.py"), str(names)],
        "sandbox": "off",
    }
    config = configured(
        tmp_path,
        mcpServers={"changing": changing, "notes": NOTES},
        publish={"mcpServers": ["changing", "notes"]},
    )
    for words, finds in (((), False), (("--force-fetch-tool-list",), True)):
        names.write_text("first")
        with serving("-c", config, *words, home=tmp_path) as running:
            client = HttpClient(running.url)
            client.initialize()
            assert b"called first" in client.request("tools/call", {"name": "first"}).body
            names.write_text("second")
            for _ in range(2):
                assert (b"called second" in client.request("tools/call", {"name": "second"}).body) is finds
                assert (b"called first" in client.request("tools/call", {"name": "first"}).body) is not finds


def test_the_start_tells_the_configuration_without_secrets(tmp_path: Path) -> None:
    server = {**NOTES, "env": {"TOKEN": "canary-0815"}}
    with serving("-c", configured(tmp_path, mcpServers={"notes": server}), home=tmp_path) as running:
        pass
    said = "".join(running.lines)
    assert "configuration document=" in said
    assert "notes_server.py" in said
    assert "canary" not in said


def shown(home: Path, config: str, **env: Any) -> dict[str, Any]:
    ran = nanobot("config", "show", "-c", config, "--format", "json", home=home, **env)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_shared_options_have_variables_and_empty_ones_count_as_unset(tmp_path: Path) -> None:
    agents = {"one": {"model": "demo"}, "two": {"model": "demo"}}
    profiles = {"a": {"publish": {"name": "A"}}, "b": {"publish": {"version": "B"}}}
    config = configured(tmp_path, agents=agents, profiles=profiles, publish={"entrypoint": ["one"]})
    assert "name" not in shown(tmp_path, config, NANOBOT_PROFILE="").get("publish", {})
    told = shown(tmp_path, config, NANOBOT_PROFILE="a,b")["publish"]
    assert (told["name"], told["version"]) == ("A", "B")
    refused = nanobot("config", "check", "-c", config, home=tmp_path, NANOBOT_AGENT="nobody")
    assert refused.returncode == 2
    assert "nobody" in refused.stdout + refused.stderr
    explicit = ("--agent", "two")
    assert (
        nanobot("config", "check", "-c", config, *explicit, home=tmp_path, NANOBOT_AGENT="x").returncode == 0
    )
