"""A thousand clients that come, use a server of their own and go: what is left of them afterwards.

Each client opens a session, so each has a process of the stdio server started for it and ended after it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import report
from mcp_session import McpSession
from processes import HERE, cpu_seconds, free_port, process

NOTES = HERE.parent / "examples" / "quickstart" / "notes_server.py"
CLIENTS = 1000
SIDE_BY_SIDE = 8
WATCHED_S = 5.0


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        server = {"command": sys.executable, "args": [str(NOTES)]}
        path = Path(home, "nanobot.yaml")
        path.write_text(json.dumps({"mcpServers": {"notes": server}, "publish": {"mcpServers": ["notes"]}}))
        port = free_port()
        argv = [sys.executable, "-m", "nanobot", "run", str(path), "-a", f"127.0.0.1:{port}"]
        argv += ["--exclude-built-in-agents", "--default-model", "demo"]
        with process(argv, port, NANOBOT_HOME=home) as child:
            url = f"http://127.0.0.1:{port}/mcp"
            for _ in range(20):
                visit(url)
            settle(child.pid)
            children, files = descendants(child.pid), open_files(child.pid)
            began = time.perf_counter()
            with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
                for _ in pool.map(lambda _: visit(url), range(CLIENTS)):
                    pass
            report.plain("clients that came and went", CLIENTS / (time.perf_counter() - began), "/s")
            settle(child.pid)
            report.figure("processes left", descendants(child.pid) - children, "", at_most=0)
            report.figure("open files left", open_files(child.pid) - files, "", at_most=0)
            before = cpu_seconds(child.pid)
            time.sleep(WATCHED_S)
            used = (cpu_seconds(child.pid) - before) / WATCHED_S * 100
            report.figure("CPU of the idle program", used, "%", at_most=1)


def visit(url: str) -> None:
    with McpSession(url) as session:
        session.call("list_notes", {})


def settle(pid: int) -> None:
    """Return when the number of descendants has stayed the same for two seconds, or after half a minute."""
    deadline, since, seen = time.monotonic() + 30, time.monotonic(), -1
    while time.monotonic() < deadline and time.monotonic() - since < 2:
        if (now := descendants(pid)) != seen:
            since, seen = time.monotonic(), now
        time.sleep(0.1)


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def descendants(pid: int) -> int:
    """How many processes live below `pid`."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found: set[int] = {pid}
    grown = True
    while grown:
        more = {child for child, parent in parents.items() if parent in found} - found
        grown = bool(more)
        found |= more
    return len(found) - 1


if __name__ == "__main__":
    main()
