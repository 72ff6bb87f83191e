"""`nanobot --version` against the bare interpreter: time, memory, and what gets imported."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import report

HEAVY = (
    "aiohttp",
    "pydantic",
    "sqlalchemy",
    "mcp",
    "openai",
    "anthropic",
    "ruamel",
    "rich",
    "starlette",
    "msgspec",
)


def run(argv: list[str]) -> tuple[float, float]:
    """Wall seconds and peak MB of one process."""
    started = time.perf_counter()
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{argv} ended with {child.returncode}")
    return time.perf_counter() - started, usage.ru_maxrss / 1024


def main() -> None:
    command = [str(Path(sys.executable).parent / "nanobot"), "--version"]
    pairs = [(run(command), run([sys.executable, "-c", "pass"])) for _ in range(21)][1:]
    ours = statistics.median(a[0] for a, _ in pairs)
    bare = statistics.median(b[0] for _, b in pairs)
    report.ratio("--version, ms", ours * 1000, "bare interpreter, ms", bare * 1000, at_most=6)
    report.figure("--version, peak memory", statistics.median(a[1] for a, _ in pairs), "MB", at_most=40)
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=True
    ).stderr
    modules = set(re.findall(r"\|\s+([a-z_]+)", loaded))
    if "nanobot" not in modules:
        raise RuntimeError("the list of loaded modules is not what it was thought to be")
    heavy = sorted(modules & set(HEAVY))
    report.figure(f"--version, heavy modules loaded {heavy or ''}", len(heavy), "modules", at_most=0)


if __name__ == "__main__":
    main()
