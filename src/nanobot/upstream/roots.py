"""Directories that the operator shows to servers as roots."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

CWD: Final = "cwd"
"""Name of the root in which a server in a container starts, if its definition says nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """`path` is absolute and holds no symbolic link. `is_writable`: containers may change what is in it."""

    path: Path
    name: str
    is_writable: bool = False

    def json(self) -> dict[str, str]:
        """As MCP writes it."""
        return {"uri": self.path.as_uri(), "name": self.name}
