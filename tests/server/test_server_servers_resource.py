"""The states of servers as MCP clients of both eras read them: what the API tells, and to nobody else."""

from __future__ import annotations

import hashlib
import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from tests.peers.mcp_http import HttpClient
from tests.peers.programs import QUICKSTART, serving

NOTES = {"command": sys.executable, "args": [str(QUICKSTART / "notes_server.py")]}
URI = "nanobot://servers"
SECRET = "nb-ann-key-0123456789"


def publishing(home: Path, *names: str, **more: Any) -> tuple[str, ...]:
    servers = {name: {**NOTES, "env": {"WHO": name}} for name in names}
    document = {"mcpServers": servers, "publish": {"mcpServers": list(names)}, **more}
    (home / "nanobot.yaml").write_text(json.dumps(document))
    return "-c", str(home / "nanobot.yaml"), "--exclude-built-in-agents"


def told_by_api(url: str, **headers: str) -> Any:
    with urllib.request.urlopen(
        urllib.request.Request(f"{url}/api/servers", headers=headers), timeout=20
    ) as answer:
        return json.load(answer)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_clients_find_and_read_what_the_api_tells(tmp_path: Path, mode: Any) -> None:
    async def look(url: str) -> tuple[list[str], Any]:
        async with Client(f"{url}/mcp", mode=mode) as client:
            listed = await client.list_resources()
            (content,) = (await client.read_resource(URI)).contents
            assert content.mime_type == "application/json"
            return [str(resource.uri) for resource in listed.resources], json.loads(content.text)  # type: ignore[union-attr]

    with serving(*publishing(tmp_path, "a", "b"), home=tmp_path) as running:
        uris, told = anyio.run(look, running.url)
        assert uris == [URI, "note:///shopping", "note:///welcome"]
        asked = told_by_api(running.url)
        for one in (*told["servers"], *asked["servers"]):
            del one["tools"]  # they are counted in the background
        assert told == asked
        assert {one["name"]: one["state"] for one in told["servers"]} == {"a": "ready", "b": "ready"}


def test_it_stands_in_a_list_that_is_empty_otherwise(tmp_path: Path) -> None:
    with serving(*publishing(tmp_path), home=tmp_path) as running:
        client = HttpClient(running.url)
        client.initialize()
        listed = client.request("resources/list").json["result"]["resources"]
        assert [one["uri"] for one in listed] == [URI]


def test_a_server_that_is_published_alone_stays_as_it_is(tmp_path: Path) -> None:
    with serving(*publishing(tmp_path, "a"), home=tmp_path) as running:
        client = HttpClient(running.url)
        client.initialize()
        listed = client.request("resources/list").json["result"]["resources"]
        assert [one["uri"] for one in listed] == ["note:///shopping", "note:///welcome"]
        assert "unknown resource" in client.request("resources/read", {"uri": URI}).json["error"]["message"]


def test_who_may_not_ask_the_api_may_not_read_it_either(tmp_path: Path) -> None:
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    auth = {"apiKeys": [{"name": "ann", "sha256": digest}]}
    with serving(*publishing(tmp_path, "a", "b", auth=auth), home=tmp_path) as running:
        stranger = HttpClient(running.url)
        assert stranger.request("resources/read", {"uri": URI}).status == 401
        bearer = {"Authorization": f"Bearer {SECRET}"}
        ann = HttpClient(running.url, bearer)
        ann.initialize()
        (content,) = ann.request("resources/read", {"uri": URI}).json["result"]["contents"]
        # They are starting, so what is told of each may be another thing a moment later.
        read, asked = json.loads(content["text"])["servers"], told_by_api(running.url, **bearer)["servers"]
        assert [one["name"] for one in read] == [one["name"] for one in asked] == ["a", "b"]
        assert [one.keys() for one in read] == [one.keys() for one in asked]
