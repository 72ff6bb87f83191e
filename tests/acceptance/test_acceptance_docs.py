"""The guides: every configuration in them loads, every console shows what happens."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from tests.peers.programs import QUICKSTART, nanobot

DOCS = Path(__file__).parents[2] / "docs"


def snippets(language: str) -> list[tuple[str, str]]:
    """Page and text of every snippet in the guides."""
    pages = [(page.name, page.read_text(encoding="utf-8")) for page in sorted(DOCS.glob("*.md"))]
    fence = re.compile(rf"```{language}\n(.*?)```", re.DOTALL)
    return [(name, snippet) for name, text in pages for snippet in fence.findall(text)]


def configured(folder: Path, document: str) -> None:
    (folder / "nanobot.yaml").write_text(document)
    for file in re.findall(r"\./([\w-]+\.(?:py|ts|js))", document):
        (folder / file).touch()
    shutil.copy(QUICKSTART / "notes_server.py", folder / "notes_server.py")


@pytest.mark.parametrize(("page", "snippet"), snippets("yaml"))
def test_every_configuration_loads(page: str, snippet: str, tmp_path: Path) -> None:
    configured(tmp_path, snippet)
    checked = nanobot("config", "check", "-c", str(tmp_path / "nanobot.yaml"), home=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(("page", "console"), snippets("console"))
def test_every_console_shows_what_happens(page: str, console: str, tmp_path: Path) -> None:
    """Its commands use the first configuration of the page."""
    configured(tmp_path, next(text for name, text in snippets("yaml") if name == page))
    for command, expected in re.findall(r"^\$ nanobot ([^\n]*)\n(.*?)(?=^\$ |\Z)", console, re.S | re.M):
        done = nanobot(*shlex.split(command), "-c", "./nanobot.yaml", home=tmp_path, cwd=tmp_path)
        said = done.stdout.replace(f"{tmp_path}/", "").replace("./", "")
        assert said == expected, done.stdout + done.stderr
