"""`nanobot config check` and `nanobot config show`, as processes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from nanobot.config.diagnostics import Diagnostics
from nanobot.config.nodes import plain
from nanobot.config.yaml_text import parse_yaml

if TYPE_CHECKING:
    from conftest import Folder


def nanobot(folder: Folder, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nanobot", "config", *arguments],
        cwd=folder.path,
        env=folder.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_valid_configuration_is_said_to_be_so(folder: Folder) -> None:
    ran = nanobot(folder, "check")
    assert (ran.returncode, ran.stdout, ran.stderr) == (
        0,
        "The configuration is valid: 1 agent(s), 1 MCP server(s).\n",
        "",
    )


def test_findings_go_to_stderr_and_the_status_is_2(folder: Folder) -> None:
    folder.write("x.yaml", "agents:\n  a: {modle: x}\n")
    ran = nanobot(folder, "check", "-c", "./x.yaml")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        "./x.yaml:2:7: error[unknown-key] agents.a.modle: The key 'modle' is not known here. "
        "(did you mean 'model'?)\n"
    )


def test_findings_as_json_and_strictness(folder: Folder) -> None:
    folder.write("x.yaml", "agents: {a: {temperature: 1, topP: 1}}")
    ran = nanobot(folder, "check", "-c", "./x.yaml", "--json")
    found = json.loads(ran.stdout)
    assert (ran.returncode, found["ok"], [d["severity"] for d in found["diagnostics"]]) == (
        0,
        True,
        ["warning"],
    )
    ran = nanobot(folder, "check", "-c", "./x.yaml", "--json", "--strict")
    found = json.loads(ran.stdout)
    assert (ran.returncode, found["ok"], [d["severity"] for d in found["diagnostics"]]) == (
        2,
        False,
        ["error"],
    )


def test_what_is_in_effect_is_shown_without_secrets(folder: Folder) -> None:
    folder.env["TOK"] = "CANARY1"
    folder.write(
        "x.yaml",
        """\
        agents: {a: {instructions: "Say ${TOK}"}}
        mcpServers: {s: {command: x, args: [--token, CANARY2], env: {A: CANARY3, B: "${TOK}"}}}
        llmProviders: {openai: {apiKey: CANARY4}}
        """,
    )
    as_json = nanobot(folder, "show", "-c", "./x.yaml", "--format", "json")
    shown = json.loads(as_json.stdout)
    assert shown["mcpServers"]["s"] == {
        "command": "x",
        "args": ["--token", "***"],
        "env": {"A": "***", "B": "${TOK}"},
    }
    assert shown["llmProviders"]["openai"]["apiKey"] == "***"
    assert shown["publish"]["entrypoint"] == ["a", "nanobot"]
    as_yaml = nanobot(folder, "show", "-c", "./x.yaml", "--origin")
    node = parse_yaml(as_yaml.stdout, "shown", Diagnostics())
    assert node is not None
    assert plain(node) == shown
    assert "instructions: Say ${TOK}  # ./x.yaml:1:14\n" in as_yaml.stdout.replace('"', "")
    assert "CANARY" not in as_json.stdout + as_yaml.stdout + as_json.stderr + as_yaml.stderr


def test_without_built_in_agents_and_without_files_there_is_nothing(folder: Folder) -> None:
    ran = nanobot(folder, "show", "--exclude-built-in-agents")
    assert ran.returncode == 2
    assert "error[no-config]" in ran.stderr


def test_what_is_shown_can_be_loaded_again(folder: Folder) -> None:
    folder.write("x.yaml", "agents: {a: {tools: [Read]}}\nmcpServers: {s: {command: x}}")
    shown = nanobot(folder, "show", "-c", "./x.yaml", "--exclude-built-in-agents").stdout
    folder.write("y.yaml", shown)
    again = nanobot(folder, "show", "-c", "./y.yaml", "--exclude-built-in-agents").stdout
    assert again == shown
