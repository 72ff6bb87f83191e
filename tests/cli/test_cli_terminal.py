"""The terminal chat in a real pseudo-terminal, and the streamed Markdown it prints."""

from __future__ import annotations

import io
import itertools
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.peers.programs import QUICKSTART, clean_env

from nanobot.cli.questions import NotUsable, fields_of
from nanobot.cli.screen import StreamedAnswer
from nanobot.cli.text import shorten, visible

ANSWER = """# Title

A *first* paragraph
of two lines.

```python
x = 1

y = 2
```

- one
- two

The end."""


def printed(*pieces: str) -> str:
    out = Console(file=io.StringIO(), width=60, force_terminal=False)
    answer = StreamedAnswer(out, markdown=True)
    for piece in pieces:
        answer.add(piece)
    answer.finish()
    return out.file.getvalue()


@given(cuts=st.lists(st.integers(0, len(ANSWER)), max_size=8))
def test_streamed_markdown_does_not_depend_on_the_pieces(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(ANSWER)]
    pieces = [ANSWER[a:b] for a, b in itertools.pairwise(edges)]
    assert printed(*pieces) == printed(ANSWER)


def test_every_block_is_printed_once() -> None:
    shown = printed(ANSWER)
    for part in ("Title", "paragraph", "x = 1", "y = 2", "one", "The end."):
        assert shown.count(part) == 1


@given(st.text())
def test_no_control_sequence_reaches_the_terminal(text: str) -> None:
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", visible(text))


@given(st.text(), st.integers(1, 80))
def test_a_shortened_line_fits(text: str, width: int) -> None:
    assert len(shorten(text, width)) <= width
    assert "\n" not in shorten(text, width)


class Terminal:
    """`nanobot chat` behind a pseudo-terminal, read until what is awaited has appeared."""

    def __init__(self, args: list[str], home: Path) -> None:
        main, side = pty.openpty()
        env = clean_env(home, TERM="xterm", COLUMNS="100", LINES="30", PROMPT_TOOLKIT_NO_CPR="1")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nanobot", "chat", *args],
            stdin=side, stdout=side, stderr=side, env=env, cwd=home, start_new_session=True,
        )  # fmt: skip
        os.close(side)
        self._main = main
        self.seen = ""

    def until(self, text: str, timeout_s: float = 30) -> None:
        deadline = time.monotonic() + timeout_s
        while text not in self.seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen!r}"
            if select.select([self._main], [], [], 0.2)[0]:
                data = os.read(self._main, 65536)
                self.seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", data.decode(errors="replace"))
        self.seen = self.seen.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._main)


@pytest.fixture
def model_url(tmp_path: Path) -> Generator[str]:
    """Base URL of a scripted model server."""
    argv = [sys.executable, "-m", "nanobot.testing.model_server", "--port", "0"]
    server = subprocess.Popen(argv, env=clean_env(tmp_path), stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    yield server.stdout.readline().strip()
    server.terminate()
    server.wait()
    server.stdout.close()


def test_the_demo_answers_and_the_terminal_leaves_on_ctrl_d(tmp_path: Path) -> None:
    terminal = Terminal(["-c", str(QUICKSTART), "--default-model", "demo"], tmp_path)
    try:
        terminal.until(">")
        terminal.type('call read_note {"name": "welcome"}\r')
        terminal.until("✓ read_note")
        terminal.until("Agents are files")
        terminal.until(">")
        terminal.type("\x04")
        terminal.until("nanobot chat -s cli:direct")
        assert terminal.process.wait(15) == 0
    finally:
        terminal.end()


def test_ctrl_c_stops_the_turn_and_not_the_program(tmp_path: Path, model_url: str) -> None:
    config = tmp_path / "nanobot.yaml"
    config.write_text(
        "llmProviders:\n  slow:\n    dialect: OpenAIChatCompletions\n    apiKey: x\n"
        f"    baseURL: {model_url}\nagents:\n  a:\n    model: slow/m\n"
    )
    terminal = Terminal(["-c", str(config)], tmp_path)
    try:
        terminal.until(">")
        # Written with an escape, so that the echo of the typing is not taken for the answer.
        terminal.type(r'go [[{"text": "\u006fne two three four", "pause_ms": 3000}]]' + "\r")
        terminal.until("one")
        os.killpg(terminal.process.pid, signal.SIGINT)
        terminal.until("stopped")
        terminal.until(">")
        terminal.type(r'go on [[{"text": "\u0073till here"}]]' + "\r")
        terminal.until("still here")
        terminal.until(">")
        terminal.type("exit\r")
        assert terminal.process.wait(15) == 0
    finally:
        terminal.end()


def approving(tmp_path: Path) -> list[str]:
    """Arguments for an agent whose every call is asked about."""
    server = QUICKSTART / "notes_server.py"
    (tmp_path / "nanobot.yaml").write_text(
        "agents:\n  a:\n    model: demo\n    mcpServers: [notes]\n"
        "    toolApprovals: {default: approve, rules: [{tool: notes/list_notes, allow: true}]}\n"
        f"mcpServers:\n  notes: {{command: {sys.executable}, args: [{server}], sandbox: off}}\n"
    )
    return ["-c", str(tmp_path / "nanobot.yaml")]


def test_a_call_is_asked_about_in_the_terminal_and_the_answer_counts(tmp_path: Path) -> None:
    terminal = Terminal(approving(tmp_path), tmp_path)
    try:
        terminal.until(">")
        terminal.type('call read_note {"name": "welcome"}\r')
        terminal.until("wants to run read_note")
        terminal.until("1. Yes, once")
        terminal.until("Run it?")
        terminal.type("7\r")
        terminal.until("Type a number from 1 to 3.")
        terminal.type("1\r")
        terminal.until("✓ read_note")
        terminal.until("Agents are files")
        terminal.until(">")
        terminal.type('call read_note {"name": "shopping"}\r')
        terminal.until("Run it?")
        terminal.type("\x03")
        terminal.until("✗ read_note")
        terminal.until(">")
        terminal.type("call list_notes {}\r")
        terminal.until("✓ list_notes")
        terminal.until(">")
        terminal.type("exit\r")
        assert terminal.process.wait(15) == 0
    finally:
        terminal.end()


def test_a_form_is_read_by_its_schema() -> None:
    fields = fields_of(
        {
            "properties": {
                "name": {"type": "string", "title": "Your name", "minLength": 2},
                "age": {"type": "integer", "minimum": 1, "maximum": 120, "default": 30},
                "member": {"type": "boolean"},
                "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
                "colour": {"oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]},
                "days": {"type": "array", "items": {"enum": ["mon", "tue"]}},
            },
            "required": ["name"],
        }
    )
    assert [field.title for field in fields] == ["Your name", "age", "member", "size", "colour", "days"]
    name, age, member, size, colour, days = fields
    assert (name.read("Ada"), age.read(""), age.read("7"), member.read("yes")) == ("Ada", 30, 7, True)
    assert (size.read("2"), size.read("small"), size.read("")) == ("m", "s", None)
    assert (colour.read("Green"), days.read("mon, 2")) == ("#0f0", ["mon", "tue"])
    for field, text in ((name, ""), (name, "A"), (age, "x"), (age, "0"), (size, "3"), (size, "large")):
        with pytest.raises(NotUsable):
            field.read(text)
