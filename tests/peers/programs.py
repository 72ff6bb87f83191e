"""Runs real programs for tests: nanobot itself and servers beside it, each ended with its test."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart"
START_S = 30


def clean_env(home: Path, **extra: str) -> dict[str, str]:
    """An environment without keys: what is started with it knows nothing of the person who tests."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "NANOBOT_HOME": str(home / "nanobot"), **extra}


def nanobot(*args: str, home: Path, cwd: Path | None = None, input: str = "", **env: str):
    """Run the program to its end; gives exit status, stdout and stderr."""
    return subprocess.run(
        [sys.executable, "-m", "nanobot", *args],
        env=clean_env(home, **env),
        cwd=cwd or home,
        input=input,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@dataclass
class Running:
    """A program that serves. `lines` grows with what it says on stderr."""

    process: subprocess.Popen[str]
    url: str
    lines: list[str]

    def kill(self) -> None:
        """As `kill -9` does: no goodbye."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def started(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, announces: str, url: str = ""
) -> Generator[Running]:
    """Start `argv`; the block begins when a line of stderr matches `announces` (group 1 is the URL)."""
    process = subprocess.Popen(
        argv, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    lines: list[str] = []
    found = threading.Event()
    match: list[re.Match[str]] = []

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if not match and (hit := re.search(announces, line)):
                match.append(hit)
                found.set()
        found.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert found.wait(START_S), f"{argv} did not say {announces!r}: {''.join(lines)}"
        assert match, f"{argv} ended before it said {announces!r}: {''.join(lines)}"
        yield Running(process, url or match[0].group(1), lines)
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(5)
        assert process.stderr is not None
        process.stderr.close()


@contextlib.contextmanager
def serving(*args: str, home: Path, cwd: Path | None = None, **env: str) -> Generator[Running]:
    """`nanobot run ARGS` on a free port of loopback."""
    argv = [sys.executable, "-m", "nanobot", "run", *args, "-a", f"127.0.0.1:{free_port()}"]
    with started(
        argv, env=clean_env(home, **env), cwd=cwd or home, announces=r"Starting server url=(http://\S+)"
    ) as running:
        yield running
