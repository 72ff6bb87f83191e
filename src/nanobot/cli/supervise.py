"""`nanobot _exec CMD ARGS…`: run a program that dies with us, and takes all it started along.

It becomes a small watcher that knows nothing of the product. The watcher's standard input is the program's;
five seconds after its end everything is stopped. With `NANOBOT_LIFELINE_FD=n` the program gets standard input
itself, and the end of descriptor n is what counts.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nanobot

WARDEN = Path(nanobot.__file__).parent / "upstream" / "warden.py"


def supervise(argv: list[str]) -> int:
    """Never returns if it can start; else the exit status. That of the program is the watcher's."""
    if not argv:
        print("nanobot: _exec needs a command: nanobot _exec CMD ARGS…", file=sys.stderr)
        return 2
    if sys.platform == "win32":
        print("nanobot: _exec does not exist on Windows.", file=sys.stderr)
        return 2
    lifeline = os.environ.pop("NANOBOT_LIFELINE_FD", "")
    if lifeline and not _is_open(lifeline):
        print("nanobot: NANOBOT_LIFELINE_FD is no open descriptor.", file=sys.stderr)
        return 2
    os.execv(sys.executable, [sys.executable, "-I", "-S", str(WARDEN), lifeline or "-", *argv])


def _is_open(descriptor: str) -> bool:
    try:
        os.fstat(int(descriptor))
    except (ValueError, OSError):
        return False
    return True
