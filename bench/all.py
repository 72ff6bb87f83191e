"""Every benchmark, one after the other, each in a process of its own. Exit status 1 if a bound was missed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHES = ("startup", "tools_call", "sessions", "relay", "ready", "stream", "turn", "connect_cycles")


def main() -> int:
    here = Path(__file__).parent
    missed = False
    for name in sys.argv[1:] or BENCHES:
        print(f"== {name}", flush=True)
        child = subprocess.Popen(
            [sys.executable, str(here / f"{name}.py")], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for line in child.stdout:
            print(line, end="", flush=True)
            missed = missed or line.startswith("MISS")
        missed = child.wait() != 0 or missed
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
