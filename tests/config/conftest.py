"""A directory to write configuration into, and what loading it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from nanobot.config.diagnostics import Diagnostic
from nanobot.config.load import Selection, examine
from nanobot.config.model import Config


class Folder:
    """A working directory. `env` is the process environment of every load; HOME is `person` beside it."""

    def __init__(self, root: Path) -> None:
        self.path = root / "work"
        self.person = root / "person"
        self.path.mkdir()
        self.person.mkdir()
        self.env: dict[str, str] = {"HOME": str(self.person)}

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8", newline="")
        return path

    def load(self, *sources: str, **options: Any) -> Config:
        examined = examine(self.selection(sources, **options))
        assert examined.config is not None, "\n".join(map(str, examined.diagnostics))
        return examined.config

    def findings(self, *sources: str, **options: Any) -> list[str]:
        """All diagnostics as they are printed."""
        return [str(diagnostic) for diagnostic in self.diagnostics(*sources, **options)]

    def diagnostics(self, *sources: str, **options: Any) -> tuple[Diagnostic, ...]:
        return examine(self.selection(sources, **options)).diagnostics

    def codes(self, *sources: str, **options: Any) -> list[str]:
        return [diagnostic.code for diagnostic in self.diagnostics(*sources, **options)]

    def selection(self, sources: Sequence[str], **options: Any) -> Selection:
        return Selection(sources=sources, env=self.env, cwd=self.path, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)
