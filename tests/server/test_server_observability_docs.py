"""The page on observability: its configurations load and its commands do what they are there for."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.peers.programs import QUICKSTART, nanobot, serving

PAGE = (Path(__file__).parents[2] / "docs" / "observability.md").read_text(encoding="utf-8")
DOCUMENTS = re.findall(r"```yaml[^\n]*\n(.*?)```", PAGE, re.DOTALL)
(MAIN,) = re.findall(r"```yaml file=nanobot.yaml\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def split(command: str) -> tuple[list[str], dict[str, Any]]:
    """The words after `nanobot`, and the variables before it."""
    words = shlex.split(command)
    place = words.index("nanobot")
    return words[place + 1 :], dict(word.split("=", 1) for word in words[:place])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "nanobot.yaml").write_text(MAIN)
    shutil.copy(QUICKSTART / "notes_server.py", tmp_path)
    return tmp_path


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_configurations_are_accepted(document: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(document)
    checked = nanobot("config", "check", "-c", "./x.yaml", home=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_work(command: str, home: Path) -> None:
    (name, *args), env = split(command)
    if name == "run":
        with serving(*args, home=home, **env) as running:
            pass
        assert running.process.returncode == 0
    else:
        ran = nanobot(name, *args, home=home, **env)
        assert ran.returncode == 0, ran.stderr
        assert "notes" in ran.stdout


def test_there_is_something_to_try() -> None:
    assert (len(DOCUMENTS), len(COMMANDS)) == (2, 7)
