"""Command lines that run a program in some dress: those that a real shell runs, a rule that refuses finds."""

from __future__ import annotations

import random
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nanobot.agent.approval.decision import Called, decide
from nanobot.config.approvals import Approvals, Rule, StartsWith
from nanobot.config.builtin import SYSTEM
from nanobot.config.places import Reference

BASH = Reference(SYSTEM, "bash")
RULES = Approvals(
    rules=(
        Rule(target=BASH, allow=False, when={"command": StartsWith("zork")}),
        Rule(target=BASH, allow=True),
    )
)


def verdict(command: str) -> str:
    return decide([RULES], Called(server=SYSTEM, tool="bash", arguments={"command": command})).verdict


def in_double_quotes(text: str) -> str:
    return '"' + "".join("\\" + c if c in '"\\$`' else c for c in text) + '"'


def behind_backslashes(text: str) -> str:
    return "".join(c if c.isalnum() else "'\n'" if c == "\n" else "\\" + c for c in text)


QUOTES = (shlex.quote, in_double_quotes, behind_backslashes)
LETTERS: tuple[Callable[[str], str], ...] = (
    str,
    lambda c: f"'{c}'",
    lambda c: f'"{c}"',
    lambda c: f"\\{c}",
    lambda c: f"$'\\x{ord(c):02x}'",
    lambda c: f"$'\\{ord(c):03o}'",
    lambda c: f"''{c}\"\"",
    lambda c: f"{c}$@",
    lambda c: f"{c}${{NOTHING}}",
    lambda c: f"{c}$()",
    lambda c: f"{c}\\\n",
)
QUOTED = (
    "bash -c {}",
    "bash -xc {}",
    "eval {}",
    "X={}; eval $X",
    'X={}; Y=$X; bash -c "$Y"',
    "env -i PATH=$PATH bash -c {}",
    "A=1 B='x y' bash -c {}",
    "bash <<< {}",
    "source /dev/stdin <<< {}",
    "timeout 9 bash -c {}",
    "trap {} EXIT",
    "printf %s {} | bash",
    "find . -maxdepth 0 -exec bash -c {} \\;",
    "echo a | xargs -I% bash -c {}",
)
AROUND = (
    "( {} )",
    "{{ {}\n}}",
    "true && {}",
    "false || {}",
    "echo x | {}",
    "bash <<'E'\n{}\nE",
    'echo "it\'s" ; {}',
    ": # '\n{}",
    "f() {{ {}\n}}; f",
    "if true; then {}\nfi",
    "x=$({}\n)",
    'echo "$({}\n)"',
    "cat <({}\n)",
    "time {}",
    "! {}",
    "case a in a) {}\n;; esac",
)


def dressed(chance: random.Random) -> str:
    command = "".join(chance.choice(LETTERS)(c) for c in "zork")
    for _ in range(chance.randrange(4)):
        if chance.random() < 0.5:
            command = chance.choice(QUOTED).format(chance.choice(QUOTES)(command))
        else:
            command = chance.choice(AROUND).format(command)
    return command


@pytest.fixture
def runs(tmp_path: Path) -> Callable[[str], bool]:
    """Whether a real shell runs the program `zork` for a command line."""
    program, ran = tmp_path / "zork", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}

    def run(command: str) -> bool:
        ran.unlink(missing_ok=True)
        subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return ran.exists()

    return run


@pytest.mark.parametrize("seed", range(4))
def test_no_dress_that_a_shell_sees_through_hides_a_command(seed: int, runs: Callable[[str], bool]) -> None:
    chance = random.Random(seed)
    commands = [dressed(chance) for _ in range(200)]
    assert any(map(runs, commands[:5]))
    hidden = [command for command in commands if verdict(command) != "refuse"]
    assert [command for command in hidden if runs(command)] == []
    assert len(hidden) < len(commands) / 20
