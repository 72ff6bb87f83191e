"""MCP Apps and the audit log: what an app asks of its server passes hooks and is noted."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.peers.mcp_http import HttpClient
from tests.peers.programs import serving

PEER = Path(__file__).parents[1] / "peers" / "app_server.py"
GUARD = """\
def check(event):
    event["message"]["params"]["arguments"]["zone"] = "CET"
    return {"accept": True, "mutated": True, "message": event["message"]}
"""


def test_what_an_app_asks_of_its_server_passes_hooks_and_is_noted(tmp_path: Path) -> None:
    (tmp_path / "guard.py").write_text(GUARD)
    server = {
        "command": sys.executable,
        "args": [str(PEER)],
        "hooks": {"tools/call?direction=request&name=clock": "./guard.py#check"},
        "sandbox": "off",
    }
    document = {
        "mcpServers": {"notes": server},
        "agents": {"keeper": {"model": "demo", "mcpServers": ["notes"]}},
        "publish": {"entrypoint": ["keeper"]},
    }
    config, log = tmp_path / "nanobot.yaml", tmp_path / "audit.jsonl"
    config.write_text(json.dumps(document))
    options = ("-c", str(config), "--exclude-built-in-agents", "--audit-log-file", str(log))
    with serving(*options, home=tmp_path) as running:

        def at(path: str) -> HttpClient:
            return HttpClient(running.url, {"Accept": "*/*"}, path=path)

        thread = at("/api/threads").post(b"{}").json["id"]
        sent = at(f"/api/threads/{thread}/messages").post(b'{"text": "call clock {}"}')
        assert sent.json["stop"] == "completed"
        shown = at(f"/api/threads/{thread}").get().json
        items = [item for message in shown["messages"] for item in message["items"]]
        called = next(item["callID"] for item in items if item.get("name") == "clock")
        opened = at(f"/api/threads/{thread}/apps").post(json.dumps({"call": called}).encode())
        asked = at(f"/api/apps/{opened.json['id']}").request(
            "tools/call", {"name": "clock", "arguments": {"zone": "UTC"}}
        )
        assert asked.json["result"]["content"][0]["text"] == "noon in CET"
    (call,) = [json.loads(line) for line in log.read_text().splitlines()]
    assert (call["callType"], call["callIdentifier"], call["server"]) == ("tools/call", "clock", "notes")
    assert call["requestBody"]["params"]["arguments"] == {"zone": "UTC"}
    assert call["mutatedRequestBody"]["params"]["arguments"] == {"zone": "CET"}
