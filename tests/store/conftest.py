"""A store in a file of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from nanobot.store import Store, open_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "nanobot.db"


@pytest.fixture
async def store(path: Path) -> AsyncGenerator[Store]:
    async with open_store(path) as opened:
        yield opened
