"""The commands as a person meets them: what they print, and with which status they end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.peers.programs import QUICKSTART, clean_env, nanobot

DEMO = ("-c", str(QUICKSTART), "--default-model", "demo")


def test_one_message_prints_only_the_answer_on_stdout(tmp_path: Path) -> None:
    ran = nanobot("chat", *DEMO, "-m", 'call read_note {"name": "welcome"}', home=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "Welcome to nanobot" in ran.stdout
    assert "\x1b" not in ran.stdout
    assert "● read_note" in ran.stderr


def test_piped_input_is_the_message(tmp_path: Path) -> None:
    ran = nanobot("chat", *DEMO, home=tmp_path, input="call list_notes {}")
    assert ran.returncode == 0, ran.stderr
    assert "shopping" in ran.stdout


def test_a_conversation_goes_on_in_a_new_process(tmp_path: Path) -> None:
    nanobot("chat", *DEMO, "-m", "ask What is your name?", home=tmp_path)
    ran = nanobot("chat", *DEMO, "-m", "Ada", home=tmp_path)
    assert "Ada" in ran.stdout
    listed = nanobot("sessions", "list", *DEMO, home=tmp_path)
    assert listed.stdout.count("cli:direct") == 1
    shown = nanobot("sessions", "show", "cli:direct", *DEMO, home=tmp_path)
    assert shown.stdout.index("What is your name?") < shown.stdout.index("you: Ada")


def test_sessions_are_renamed_and_deleted(tmp_path: Path) -> None:
    nanobot("chat", *DEMO, "-m", "hello", home=tmp_path)
    assert nanobot("sessions", "rename", "cli:direct", "First talk", *DEMO, home=tmp_path).returncode == 0
    assert "First talk" in nanobot("sessions", "list", *DEMO, home=tmp_path).stdout
    id = nanobot("sessions", "list", *DEMO, home=tmp_path).stdout.split()[0]
    kept = tmp_path / "nanobot" / "files" / id / ".nanobot" / "todo.json"
    kept.parent.mkdir(parents=True)
    kept.write_text("[]")
    assert nanobot("sessions", "delete", "cli:direct", *DEMO, home=tmp_path).returncode == 0
    assert not kept.parent.parent.exists()
    gone = nanobot("sessions", "show", "cli:direct", *DEMO, home=tmp_path)
    assert gone.returncode == 1
    assert "There is no conversation 'cli:direct'" in gone.stderr


def test_a_listed_conversation_is_one_line(tmp_path: Path) -> None:
    nanobot("chat", *DEMO, "-m", "hello", home=tmp_path)
    nanobot("sessions", "rename", "cli:direct", "a\n\x1b[31mb\x07", *DEMO, home=tmp_path)
    listed = nanobot("sessions", "list", *DEMO, home=tmp_path).stdout
    assert listed.endswith("  a \\x1b[31mb\\x07\n")
    assert listed.count("\n") == 1


def test_a_home_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "nanobot").write_text("a file")
    ran = nanobot("chat", *DEMO, "-m", "hello", home=tmp_path)
    assert ran.returncode == 1
    assert "nanobot', cannot be made: File exists." in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_closed_standard_input_is_no_message(tmp_path: Path) -> None:
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "nanobot", "chat", *DEMO]
    ran = subprocess.run(closed, env=clean_env(tmp_path), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (2, "nanobot: The message is empty.\n")


@pytest.mark.parametrize(
    "words",
    [('{"name": "welcome"}',), ("--name=welcome",), ("--name", "welcome")],
)
def test_a_tool_is_called_with_json_or_pairs(words: tuple[str, ...], tmp_path: Path) -> None:
    ran = nanobot("call", *DEMO, "notes/read_note", *words, home=tmp_path)
    assert (ran.returncode, ran.stdout) == (
        0,
        "Welcome to nanobot. Agents are files, tools come from MCP servers.\n",
    ), ran.stderr


def test_a_tool_error_is_exit_status_1(tmp_path: Path) -> None:
    ran = nanobot("call", *DEMO, "-o", "json", "read_note", "--name=nope", home=tmp_path)
    assert ran.returncode == 1
    assert json.loads(ran.stdout)["isError"] is True


def test_an_agent_is_called_with_words(tmp_path: Path) -> None:
    ran = nanobot("call", *DEMO, "guide", "call", "list_notes", "{}", home=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "shopping" in ran.stdout


@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        (("nope",), 1, "There is no agent or tool 'nope'"),
        (("notes/nope",), 1, "There is no agent or tool 'notes/nope'"),
        (("nowhere/x",), 1, "There is no server 'nowhere'"),
        (("read_note", "[1]"), 2, "must be one JSON object"),
        (("read_note", "{"), 2, "neither a JSON object nor"),
        (("read_note", "--name"), 2, "--name needs a value"),
        (("guide",), 2, "Say something to the agent 'guide'"),
        (("-f", "/dev/zero", "guide"), 2, "is larger than"),
        (("-f", "nowhere.json", "read_note"), 2, "'nowhere.json' cannot be read: No such file or directory"),
        (("read_note", "--name=\udcff"), 2, "not valid UTF-8"),
    ],
)
def test_a_call_that_cannot_be_made_says_why(
    args: tuple[str, ...], status: int, said: str, tmp_path: Path
) -> None:
    ran = nanobot("call", *DEMO, *args, home=tmp_path)
    assert (ran.returncode, said in ran.stderr) == (status, True), ran.stderr
    assert "Traceback" not in ran.stderr


def test_targets_lists_agents_and_tools_and_a_dead_server_hides_nothing(tmp_path: Path) -> None:
    config = tmp_path / "nanobot.yaml"
    notes = {"command": "python3", "args": [str(QUICKSTART / "notes_server.py")], "sandbox": "off"}
    servers = {"notes": notes, "dead": {"command": "false", "sandbox": "off"}}
    config.write_text(json.dumps({"mcpServers": servers, "agents": {"a": {"mcpServers": ["notes", "dead"]}}}))
    ran = nanobot("targets", "-c", str(config), "--default-model", "demo", home=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "notes/read_note" in ran.stdout
    assert "nanobot.system/read" in ran.stdout
    assert "dead:" in ran.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="the Unix program `yes`")
def test_a_server_that_floods_its_output_ends_without_a_trace(tmp_path: Path) -> None:
    config = tmp_path / "nanobot.yaml"
    config.write_text("mcpServers: {loud: {command: 'yes', timeoutMs: 500}}")
    ran = nanobot("targets", "-c", str(config), home=tmp_path)
    assert "loud: MCP server 'loud' is not available: it did not answer within 0.5 s" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_misspelt_key_is_status_2_with_place_and_suggestion(tmp_path: Path) -> None:
    config = tmp_path / "team.yaml"
    config.write_text("agents:\n  a:\n    modle: demo\n")
    for command in (("config", "check"), ("run",), ("chat", "-m", "hi"), ("targets",)):
        ran = nanobot(*command, "-c", str(config), home=tmp_path)
        assert ran.returncode == 2, command
        assert "team.yaml:3:" in ran.stderr + ran.stdout
        assert "unknown-key" in ran.stderr + ran.stdout
        assert "model" in ran.stderr + ran.stdout
        assert "Traceback" not in ran.stderr


def test_a_missing_key_is_one_sentence(tmp_path: Path) -> None:
    config = tmp_path / "nanobot.yaml"
    config.write_text("agents:\n  a:\n    model: openai/gpt-4.1\n")
    ran = nanobot("chat", "-c", str(config), "-m", "hi", home=tmp_path)
    assert ran.returncode == 2
    assert "OPENAI_API_KEY" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_without_any_configuration_there_is_an_agent_to_talk_to(tmp_path: Path) -> None:
    ran = nanobot("chat", "--default-model", "demo", "-m", "hello", home=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "demo" in ran.stdout


def test_the_terminal_agent_works_in_the_current_directory(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes.txt").write_text("a line in the project\n")
    ran = nanobot(
        "chat",
        "--default-model",
        "demo",
        "-m",
        'call read {"file_path": "notes.txt"}',
        home=tmp_path,
        cwd=project,
    )
    assert "a line in the project" in ran.stdout, ran.stderr


def test_a_full_disk_is_a_sentence(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "nanobot", "chat", *DEMO, "-m", "hi"],
            env=clean_env(tmp_path), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert ran.returncode == 1
    assert "Nothing more can be written" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("chat", "-m", "  "), "The message is empty"),
        (("chat", "--new", "--continue", "-m", "x"), "only one of"),
        (("run", "x.yaml", "-c", "y.yaml"), "either as PATH or with --config"),
        (("run", "-a", "https://localhost:1"), "plain HTTP"),
        (("run", "-a", "localhost"), "no address to listen on"),
        (("run", "-a", "0.0.0.0:0"), "0.0.0.0"),
        (("chat", "-c", "missing.yaml", "-m", "x"), "missing.yaml"),
        (("chat", "-s", "\udcff", "-m", "x"), "not valid UTF-8"),
        (("sessions", "show", "\udcff"), "not valid UTF-8"),
        (("sessions", "rename", "x", "\udcff"), "not valid UTF-8"),
        (("sessions", "list", "-n", str(2**70)), "not in the range"),
    ],
)
def test_usage_errors_are_status_2_and_name_what_is_wrong(
    args: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    ran = nanobot(*args, home=tmp_path)
    assert (ran.returncode, said in ran.stderr) == (2, True), ran.stderr
    assert "Traceback" not in ran.stderr


def test_what_programs_read_of_targets_is_the_same_in_json_and_in_yaml(tmp_path: Path) -> None:
    config = tmp_path / "nanobot.yaml"
    agents = "agents: {a: {description: 'no: map, # no comment'}}"
    config.write_text(agents + "\nmcpServers: {s: {url: 'http://127.0.0.1:1/'}}\n")
    for more in ((), ("--status",)):
        asked = ("targets", "-c", str(config), "--default-model", "demo", *more, "-o")
        as_json, as_yaml = (nanobot(*asked, kind, home=tmp_path) for kind in ("json", "yaml"))
        rows: list[dict[str, Any]] = json.loads(as_json.stdout)
        same: list[dict[str, Any]] = yaml.safe_load(as_yaml.stdout)
        for row in (*rows, *same):  # the moment that each of the two runs saw, and when it would try again
            row.pop("since", None)
            row.pop("lastError", None)
        assert rows == same != []


def test_a_root_that_is_no_directory_ends_the_start(tmp_path: Path) -> None:
    done = nanobot("run", "--roots", "x:./nowhere", "--listen-address", "stdio", home=tmp_path)
    assert done.returncode == 2
    assert "'x:./nowhere' is no directory" in done.stderr
