"""The snippets of the page on sharing are configurations that load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.peers.programs import nanobot

PAGE = Path(__file__).parents[2] / "docs" / "sharing.md"
SNIPPETS = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_the_snippets_of_the_page_are_accepted(snippet: str, tmp_path: Path) -> None:
    (tmp_path / "nanobot.yaml").write_text(snippet)
    checked = nanobot("config", "check", "-c", str(tmp_path / "nanobot.yaml"), home=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) == 1
