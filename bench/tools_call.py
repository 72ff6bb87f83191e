"""`tools/call` of an in-process tool over HTTP, 16 connections: against the SDK and a bare ASGI app."""

from __future__ import annotations

import json

import report
from load import median_rate
from mcp_session import tool_call
from processes import script

ARGUMENTS = {"text": "hello"}
ANSWER = {
    "jsonrpc": "2.0",
    "id": 1,
    "result": {"content": [{"type": "text", "text": "hello"}], "isError": False},
}


def rate(server: str, *args: str, rounds: int = 5, times: int = 300) -> float:
    with script(server, *args) as (url, _):
        endpoint = url + "/mcp"
        return median_rate(endpoint, tool_call(endpoint, "echo", ARGUMENTS), rounds=rounds, times=times)


def main() -> None:
    with script("bare", json.dumps(ANSWER, separators=(",", ":"))) as (url, _):
        from load import http_request
        from mcp_session import HEADERS

        body = json.dumps(
            {"jsonrpc": "2.0", "id": 1000000, "method": "tools/call", "params": {"name": "echo"}}
        )
        bare = median_rate(url, http_request(url, body.encode(), HEADERS))
    sdk = rate("sdk", times=80)
    ours = rate("ours")
    report.ratio("built-in tools/call, calls/s", ours, "official SDK server, calls/s", sdk, at_least=8)
    report.ratio("built-in tools/call, calls/s", ours, "bare ASGI app, answers/s", bare, at_least=0.4)


if __name__ == "__main__":
    main()
