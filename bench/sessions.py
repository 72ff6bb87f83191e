"""Sessions of MCP clients: what an idle one weighs, and how even answers are while many are there.

`sessions.py [SECONDS]`: how long the soak takes (default 10; 300 for the long form).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import load
import report
from load import http_request
from mcp_session import HEADERS, tool_call
from processes import script

SESSIONS = 10_000
CONNECTIONS = 16
CLIENT = {"name": "bench", "version": "1"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": CLIENT}


def resident_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


async def _post(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    """One request and the head of its answer."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            await reader.readexactly(int(line[15:]))
    if head[9:10] != b"2":
        raise RuntimeError(head.decode("latin-1"))
    return head


def message(method: str, params: dict, **more: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()


async def open_sessions(url: str, count: int) -> None:
    """As clients do it: shake hands, say that it is done, and be silent."""

    async def some(number: int) -> None:
        host, port = url.removeprefix("http://").split("/")[0].split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        hello = http_request(url, message("initialize", HELLO, id=1), HEADERS)
        for _ in range(number):
            head = (await _post(reader, writer, hello)).decode("latin-1")
            session = head.lower().split("mcp-session-id:")[1].split("\r\n")[0].strip()
            headers = {**HEADERS, "Mcp-Session-Id": session}
            await _post(reader, writer, http_request(url, message("notifications/initialized", {}), headers))
        writer.close()

    await asyncio.gather(*(some(count // CONNECTIONS) for _ in range(CONNECTIONS)))


def soak(url: str, request: bytes, seconds: float) -> load.Load:
    """The same call over all connections until the time is over."""

    endless = load.repeat(request, 10**9)  # one for all: they share a session, and so its request ids
    end = time.monotonic() + seconds

    def requests(number: int):
        one = endless(number)
        return lambda: one() if time.monotonic() < end else None

    return asyncio.run(load.run(url, requests, CONNECTIONS))


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    with script("ours") as (base, process):
        url = f"{base}/mcp"
        call = tool_call(url, "echo", {"text": "hello"})
        asyncio.run(open_sessions(url, CONNECTIONS * 10))  # what the first ones load counts for none
        time.sleep(2)
        before = resident_kb(process.pid)
        asyncio.run(open_sessions(url, SESSIONS - CONNECTIONS * 11))
        time.sleep(3)  # until all are saved
        grown = resident_kb(process.pid) - before
        report.figure("an idle session", grown / (SESSIONS - CONNECTIONS * 11), "KB", at_most=12)
        found = soak(url, call, seconds)
        if found.failures:
            print(f"MISS {found.failures} calls failed", flush=True)
        p99, p50 = (found.percentile(q) * 1000 for q in (0.99, 0.5))
        what = f"p99 of tools/call beside {SESSIONS:,} sessions, ms"
        report.ratio(what, p99, "p50, ms", p50, at_most=8)


if __name__ == "__main__":
    main()
