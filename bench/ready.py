"""From start to the first answered request, with ten upstreams of which one hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import report
from mcp_session import HEADERS
from processes import HERE, free_port

NOTES = HERE.parent / "examples" / "quickstart" / "notes_server.py"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "b", "version": "1"},
    },
}


def measure() -> float:
    with tempfile.TemporaryDirectory() as home:
        servers = {f"notes{i}": {"command": sys.executable, "args": [str(NOTES)]} for i in range(9)}
        servers["hangs"] = {"command": "sleep", "args": ["600"]}
        config = {"mcpServers": servers, "publish": {"mcpServers": list(servers)}}
        path = Path(home, "nanobot.yaml")
        path.write_text(json.dumps(config))
        port = free_port()
        url = f"http://127.0.0.1:{port}/mcp"
        argv = [
            sys.executable,
            "-m",
            "nanobot",
            "run",
            str(path),
            "-a",
            f"127.0.0.1:{port}",
            "--default-model",
            "demo",
        ]
        started = time.perf_counter()
        child = subprocess.Popen(argv, env={**os.environ, "NANOBOT_HOME": home}, stderr=subprocess.DEVNULL)
        try:
            while time.perf_counter() - started < 30:
                try:
                    request = urllib.request.Request(url, json.dumps(HELLO).encode(), HEADERS)
                    with urllib.request.urlopen(request, timeout=5) as answer:
                        answer.read()
                    return time.perf_counter() - started
                except OSError:
                    time.sleep(0.005)
            raise RuntimeError("not ready within 30 s")
        finally:
            child.terminate()
            child.wait()


def bare() -> float:
    """The same machine's price of starting Python with an HTTP server in it."""
    port = free_port()
    started = time.perf_counter()
    child = subprocess.Popen([sys.executable, str(HERE / "servers" / "bare.py"), str(port), "{}"])
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
                return time.perf_counter() - started
            except OSError:
                time.sleep(0.005)
    finally:
        child.terminate()
        child.wait()


def main() -> None:
    ours = sorted(measure() for _ in range(5))[2]
    report.figure("ready to serve with 10 upstreams, one hanging", ours, "s", at_most=1)
    report.plain("  beside a bare uvicorn app", sorted(bare() for _ in range(3))[1], "s")


if __name__ == "__main__":
    main()
