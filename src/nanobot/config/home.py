"""Where things lie in the home: the directory of one installation's configuration and state."""

from __future__ import annotations

from pathlib import Path


def database_in(home: Path) -> Path:
    """The file of the store."""
    return home / "nanobot.db"


def files_of(home: Path, conversation: str) -> Path:
    """The folder for what tools and turns keep for one conversation; it is deleted together with it."""
    return home / "files" / conversation
