"""Well-known servers and the official inspector, with nanobot between them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from tests.peers.nodes import node
from tests.peers.programs import clean_env, serving

pytestmark = [pytest.mark.anyio, pytest.mark.node]


def configured(home: Path, **servers: list[str]) -> Path:
    """A document that publishes these commands, not confined: what is tested here is the protocol."""
    document: dict[str, Any] = {
        "mcpServers": {
            name: {"command": command[0], "args": command[1:], "sandbox": "off"}
            for name, command in servers.items()
        },
        "publish": {"mcpServers": list(servers)},
    }
    path = home / "nanobot.yaml"
    path.write_text(json.dumps(document))
    return path


async def test_the_filesystem_server_reads_and_writes_in_its_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    (tmp_path / "closed.txt").write_text("not for servers")
    config = configured(tmp_path, files=node("server-filesystem/dist/index.js", str(folder)))
    with serving(str(config), "--default-model", "demo", home=tmp_path) as server:
        async with Client(server.url + "/mcp", mode="legacy") as client:
            note = str(folder / "note.txt")
            await client.call_tool("write_file", {"path": note, "content": "grüße"})
            assert Path(note).read_text() == "grüße"
            read = await client.call_tool("read_text_file", {"path": note})
            assert read.content[0].model_dump()["text"] == "grüße"
            outside = await client.call_tool("read_text_file", {"path": str(tmp_path / "closed.txt")})
            assert outside.is_error


async def test_the_memory_server_remembers(tmp_path: Path) -> None:
    config = configured(tmp_path, memory=node("server-memory/dist/index.js"))
    document = json.loads(config.read_text())
    document["mcpServers"]["memory"]["env"] = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    config.write_text(json.dumps(document))
    with serving(str(config), "--default-model", "demo", home=tmp_path) as server:
        async with Client(server.url + "/mcp", mode="legacy") as client:
            ada = {"name": "Ada", "entityType": "person", "observations": ["likes engines"]}
            await client.call_tool("create_entities", {"entities": [ada]})
            found = await client.call_tool("search_nodes", {"query": "engines"})
            assert found.structured_content is not None
            assert [one["name"] for one in found.structured_content["entities"]] == ["Ada"]


def inspect(home: Path, *args: str) -> Any:
    """What the official inspector prints, as JSON."""
    done = subprocess.run(
        [*node("inspector/clients/launcher/build/index.js", "--cli"), *args],
        env=clean_env(home), cwd=home, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("transport", ["http", "sse", "stdio"])
def test_the_inspector_lists_and_calls_a_tool(transport: str, tmp_path: Path) -> None:
    config = tmp_path / "nanobot.yaml"
    config.write_text("publish: {mcpServers: nanobot.system}\n")
    run = [sys.executable, "-m", "nanobot", "run", str(config), "--default-model", "demo"]
    call = ["--method", "tools/call", "--tool-name", "todoWrite", "--tool-arg", "todos=[]"]
    if transport == "stdio":
        target = [*run, "--listen-address", "stdio"]
        check(tmp_path, target, call)
        return
    with serving(str(config), "--default-model", "demo", "--legacy-sse", home=tmp_path) as server:
        check(
            tmp_path,
            [server.url + ("/mcp" if transport == "http" else "/sse"), "--transport", transport],
            call,
        )


def check(home: Path, target: list[str], call: list[str]) -> None:
    tools = inspect(home, *target, "--method", "tools/list")["tools"]
    assert "todoWrite" in {tool["name"] for tool in tools}
    assert not inspect(home, *target, *call).get("isError")
