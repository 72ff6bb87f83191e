"""The page on logins: its configurations load, and its commands exist and do what they say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.peers.programs import nanobot

PAGE = (Path(__file__).parents[2] / "docs" / "logins.md").read_text(encoding="utf-8")
DOCUMENTS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"nanobot (mcp [^\n`]+)", PAGE)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_configurations_are_accepted_and_show_no_secret(document: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(document.replace("${TRACKER_SECRET}", "canary-secret"))
    checked = nanobot("config", "check", "-c", "./x.yaml", home=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    shown = nanobot("config", "show", "-c", "./x.yaml", home=tmp_path)
    assert "https://mcp." in shown.stdout
    assert "canary" not in shown.stdout + shown.stderr


@pytest.mark.parametrize("command", [c for c in COMMANDS if " login " not in c])
def test_the_commands_work(command: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(DOCUMENTS[0])
    done = nanobot(*shlex.split(command), "-c", "./x.yaml", home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "tracker" in done.stdout


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ("{command: x, oauth: {clientId: a}}", "`oauth` is for servers with `url`"),
        ("{url: 'https://x', oauth: {clientSecret: canary}}", "needs the clientId"),
        ("{url: 'https://x', oauth: {clientid: a}}", "did you mean 'clientId'"),
    ],
)
def test_a_definition_that_cannot_log_in_is_refused(definition: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(f"mcpServers: {{far: {definition}}}")
    checked = nanobot("config", "check", "-c", "./x.yaml", home=tmp_path)
    assert checked.returncode != 0
    assert reason in checked.stdout + checked.stderr
    assert "canary" not in checked.stdout + checked.stderr
