"""Starts the programs that are measured, each in a process of its own, and stops them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def process(argv: Sequence[str], port: int, *, wait_s: float = 60, **env: str) -> Generator[subprocess.Popen]:
    """A program that listens on `port` of 127.0.0.1; the block starts when it accepts connections."""
    child = subprocess.Popen(
        argv, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        deadline = time.monotonic() + wait_s
        while True:
            if child.poll() is not None:
                raise RuntimeError(
                    f"{argv} ended with {child.returncode}: {child.stderr.read().decode()[-2000:]}"
                )
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if time.monotonic() > deadline:
                raise RuntimeError(f"{argv} did not listen on {port} within {wait_s} s")
            time.sleep(0.02)
        yield child
    finally:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(5)
        child.kill()
        child.wait()
        child.stderr.close()


@contextlib.contextmanager
def script(
    name: str, *args: str, python: str = sys.executable, **env: str
) -> Generator[tuple[str, subprocess.Popen]]:
    """`servers/<name>.py PORT ARGS…`; gives its base URL and the process."""
    port = free_port()
    argv = [python, str(HERE / "servers" / f"{name}.py"), str(port), *args]
    with process(argv, port, **env) as child:
        yield f"http://127.0.0.1:{port}", child


def cpu_seconds(pid: int) -> float:
    """User and system time of a living process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
