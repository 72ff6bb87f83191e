"""Peers from npm. Absent on a user's machine they skip a test; in CI their absence is a failure."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

MODULES = Path(__file__).parents[1] / "node" / "node_modules"


def everything(transport: str) -> list[str]:
    """The command of `server-everything` on a transport (`stdio`, `sse`, `streamableHttp`)."""
    return node("server-everything/dist/index.js", transport)


def node(script: str, *args: str) -> list[str]:
    """The command that runs a script of the packages `@modelcontextprotocol/…`."""
    path = MODULES / "@modelcontextprotocol" / script
    program = shutil.which("node")
    if program is None or not path.exists():
        reason = "needs Node.js and `npm install --prefix tests/node`"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return [program, str(path), *args]
