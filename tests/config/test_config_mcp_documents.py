"""MCP servers in a document of their own beside `nanobot.yaml`."""

from __future__ import annotations

import json

import pytest
from tests.config.conftest import Folder

SERVER = {
    "command": "run",
    "args": ["x"],
    "env": {"A": "b"},
    "cwd": "sub",
    "allow_tools": ["t"],
    "timeout_ms": 5,
}


@pytest.mark.parametrize("name", ["mcp.json", "mcp.yaml", "mcp.yml"])
def test_servers_of_a_document_of_their_own(name: str, folder: Folder) -> None:
    folder.write(f"conf/{name}", json.dumps({"$schema": "x", "mcpServers": {"one": SERVER}}))
    server = folder.load("./conf").mcp_servers["one"]
    assert (server.command, server.args, server.env) == ("run", ("x",), {"A": "b"})
    assert (server.cwd, server.base_dir) == ("sub", folder.path / "conf")
    assert (server.allow_tools, server.timeout_ms) == (("t",), 5)
    assert server.origin.source.endswith(name)


def test_a_server_of_the_base_document_counts_whole(folder: Folder) -> None:
    folder.write("conf/nanobot.yaml", "mcpServers: {one: {command: mine}, two: {command: b}}")
    folder.write("conf/mcp.json", json.dumps({"mcpServers": {"one": SERVER, "three": SERVER}}))
    servers = folder.load("./conf").mcp_servers
    assert {name: server.command for name, server in servers.items() if not server.builtin} == {
        "one": "mine",
        "two": "b",
        "three": "run",
    }
    assert servers["one"].args == ()
    [found] = folder.findings("./conf")
    assert "warning[duplicate-definition]" in found
    assert "conf/nanobot.yaml:1:" in found


def test_agents_may_use_them(folder: Folder) -> None:
    folder.write("conf/mcp.json", json.dumps({"mcpServers": {"one": SERVER}}))
    folder.write("conf/agents/main.md", "---\nmcpServers: [one]\n---\nHello")
    assert str(folder.load("./conf").agents["main"].mcp_servers[0]) == "one"


def test_two_documents_of_servers_are_one_too_many(folder: Folder) -> None:
    folder.write("conf/mcp.json", "{}")
    folder.write("conf/mcp.yaml", "")
    assert folder.codes("./conf") == ["duplicate-definition"]


@pytest.mark.parametrize(
    "name", ["mcp-servers.yaml", "mcp-servers.json", "mcp-servers.yml", "mcpServers.json"]
)
def test_the_old_form_still_counts_where_nothing_else_does(name: str, folder: Folder) -> None:
    folder.write(f"conf/{name}", json.dumps({"one": SERVER}))
    assert folder.load("./conf").mcp_servers["one"].command == "run"
    assert folder.codes("./conf") == ["deprecated"]
    folder.write("conf/mcp.json", json.dumps({"mcpServers": {"two": SERVER}}))
    assert "one" not in folder.load("./conf").mcp_servers
    assert folder.codes("./conf") == ["ignored-key"]


def test_what_is_wrong_in_it_has_its_place(folder: Folder) -> None:
    folder.write("conf/mcp.json", '{\n "mcpServers": {"one": {"comand": "x"}}, "agents": {}\n}')
    found = folder.findings("./conf")
    assert any("conf/mcp.json:2:" in one and "comand" in one and "command" in one for one in found)
    assert any("'agents'" in one for one in found)


def test_a_file_named_agents_is_told(folder: Folder) -> None:
    folder.write("conf/nanobot.yaml", "{}")
    folder.write("conf/agents", "")
    [found] = folder.findings("./conf")
    assert "conf/agents:1:1: warning" in found
    assert "agents/<id>.md" in found
