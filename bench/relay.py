"""`tools/call` relayed HTTP to HTTP, 16 connections: against bare hops and a FastMCP proxy."""

from __future__ import annotations

from contextlib import ExitStack

import report
from load import Target, rates
from mcp_session import tool_call
from processes import script

ARGUMENTS = {"text": "hello"}
TIMES = {"ours": 200, "hop_httpx2": 80, "hop_aiohttp": 250, "fastmcp_proxy": 20}


def main() -> None:
    with ExitStack() as running:
        upstream, _ = running.enter_context(script("upstream"))
        targets: dict[str, Target] = {}
        for name, times in TIMES.items():
            base, _ = running.enter_context(script(name, f"{upstream}/mcp"))
            targets[name] = Target(f"{base}/mcp", tool_call(f"{base}/mcp", "echo", ARGUMENTS), times)
        found = rates(targets)
    what, ours = "relayed tools/call, calls/s", found["ours"]
    report.rounds(what, ours, "bare httpx2 hop, calls/s", found["hop_httpx2"], at_least=2.5)
    report.rounds(what, ours, "FastMCP proxy, calls/s", found["fastmcp_proxy"], at_least=7)
    report.rounds(what, ours, "bare aiohttp hop, calls/s", found["hop_aiohttp"], at_least=0.6)


if __name__ == "__main__":
    main()
