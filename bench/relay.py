"""`tools/call` relayed HTTP to HTTP, 16 connections: against bare hops and a FastMCP proxy."""

from __future__ import annotations

import statistics

import report
from load import median_rate
from mcp_session import tool_call
from processes import script

ARGUMENTS = {"text": "hello"}


def rate(name: str, upstream: str, *, times: int) -> float:
    with script(name, upstream) as (url, _):
        endpoint = url + "/mcp"
        return median_rate(endpoint, tool_call(endpoint, "echo", ARGUMENTS), times=times)


def main() -> None:
    with script("upstream") as (base, _):
        upstream = base + "/mcp"
        ours = statistics.median(rate("ours", upstream, times=150) for _ in range(2))
        aiohttp = rate("hop_aiohttp", upstream, times=150)
        httpx2 = rate("hop_httpx2", upstream, times=60)
        fastmcp = rate("fastmcp_proxy", upstream, times=20)
    report.ratio("relayed tools/call, calls/s", ours, "bare httpx2 hop, calls/s", httpx2, at_least=2.5)
    report.ratio("relayed tools/call, calls/s", ours, "FastMCP proxy, calls/s", fastmcp, at_least=7)
    report.ratio("relayed tools/call, calls/s", ours, "bare aiohttp hop, calls/s", aiohttp, at_least=0.6)


if __name__ == "__main__":
    main()
