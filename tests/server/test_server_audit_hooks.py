"""Hooks and the audit log: an entry tells what was asked, what went on, and who changed it."""

from __future__ import annotations

from pathlib import Path

from tests.peers.mcp_http import HttpClient
from tests.server.test_server_audit import NOTES, READ, logging_to_a_file


def test_what_hooks_did_is_in_the_entry(tmp_path: Path) -> None:
    (tmp_path / "guard.py").write_text(
        "def check(event):\n"
        "    event['message']['params']['arguments']['name'] = 'shopping'\n"
        "    return {'accept': True, 'mutated': True, 'message': event['message'], 'reason': 'other note'}\n"
    )
    hooked = {**NOTES, "hooks": {"tools/call?direction=request": "./guard.py#check"}}
    with logging_to_a_file(tmp_path, server=hooked) as world:
        client = HttpClient(world.running.url)
        client.initialize()
        client.request("tools/call", READ)
    (call,) = world.of("tools/call")
    assert call["requestBody"]["params"]["arguments"]["name"] == "welcome"
    assert call["mutatedRequestBody"]["params"]["arguments"]["name"] == "shopping"
    (status,) = call["webhookStatuses"]
    assert (status["type"], status["method"], status["status"]) == ("request", "tools/call", "mutated")
    assert status["message"] == "other note"
