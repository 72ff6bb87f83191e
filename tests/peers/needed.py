"""What a test needs of the machine: a person's machine may lack it, the one that judges changes may not."""

from __future__ import annotations

import os

import pytest


def needed(is_there: bool, what: str) -> pytest.MarkDecorator:
    """Skip where `what` is absent; in CI run anyway, and fail."""
    return pytest.mark.skipif(not is_there and not os.environ.get("CI"), reason=f"needs {what}")
