"""Peers from npm. Absent on a user's machine they skip a test; in CI their absence is a failure."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

MODULES = Path(__file__).parents[1] / "node" / "node_modules"


def everything(transport: str) -> list[str]:
    """The command of `server-everything` on a transport (`stdio`, `sse`, `streamableHttp`)."""
    script = MODULES / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    node = shutil.which("node")
    if node is None or not script.exists():
        reason = "needs Node.js and `npm install --prefix tests/node`"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return [node, str(script), transport]
