"""Help and version answer at once: a fresh interpreter shows what they import."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from nanobot.cli.table import COMMANDS

HEAVY = {"pydantic", "rich", "aiohttp", "sqlalchemy", "ruamel", "mcp", "openai", "anthropic", "starlette",
         "uvicorn", "msgspec", "anyio", "prompt_toolkit"}  # fmt: skip


def modules_of(*args: str) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "nanobot", *args],
        capture_output=True,
        text=True,
        check=True,
    )
    found = set(re.findall(r"\|\s+(\w+)", run.stderr))
    assert "nanobot" in found
    return found


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_imports_nothing_heavy(command: str) -> None:
    assert not modules_of(*([command] if command else []), "--help") & HEAVY


def test_version_imports_not_even_the_command_line_library() -> None:
    assert not modules_of("--version") & (HEAVY | {"click"})
