"""What every test shares: the event loop it runs on."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("here", deadline=None)  # how long a case takes is no matter of a test
settings.load_profile("here")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
