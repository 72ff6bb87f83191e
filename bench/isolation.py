"""The isolation check with a million calls instead of the hundred thousand that every test run makes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import report

ROOT = Path(__file__).parents[1]
CHECK = "tests/acceptance/test_acceptance_isolation.py"
CALLS = 1_000_000


def main() -> int:
    env = os.environ | {"ISOLATION_CALLS": str(CALLS)}
    began = time.monotonic()
    status = subprocess.call([sys.executable, "-m", "pytest", "-q", CHECK], cwd=ROOT, env=env)
    report.figure("answers that reached another client", status, f"failures in {CALLS:,} calls", at_most=0)
    print(f"     {CALLS / (time.monotonic() - began):,.0f} calls/s with everything")
    return status


if __name__ == "__main__":
    sys.exit(main())
