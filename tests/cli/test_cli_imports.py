"""Help and version answer at once: a fresh interpreter shows what they import."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.peers.programs import clean_env

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


def test_tracing_is_imported_by_nobody_who_did_not_ask_for_it(tmp_path: Path) -> None:
    asked = ("targets", "--default-model", "demo")
    program = f"import sys; sys.argv = ['nanobot', *{asked!r}]\nfrom nanobot.cli.main import main\n"
    program += "try:\n    main()\nexcept SystemExit:\n    pass\nprint(*sys.modules)"
    for on in (False, True):
        env = clean_env(tmp_path, **({"OTEL_TRACES_EXPORTER": "console"} if on else {}))
        run = subprocess.run(
            [sys.executable, "-c", program], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert ("opentelemetry" in run.stdout.split()) is on
