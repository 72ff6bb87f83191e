"""`tools/call` of an in-process tool over HTTP, 16 connections: against the SDK and a bare ASGI app."""

from __future__ import annotations

import json

import report
from load import ID, Target, http_request, rates
from mcp_session import HEADERS, tool_call
from processes import script

ARGUMENTS = {"text": "hello"}
ANSWER = {
    "jsonrpc": "2.0",
    "id": 1,
    "result": {"content": [{"type": "text", "text": "hello"}], "isError": False},
}


def main() -> None:
    body = json.dumps(ANSWER, separators=(",", ":"))
    with script("bare", body) as (bare, _), script("sdk") as (sdk, _), script("ours") as (ours, _):
        call = {"jsonrpc": "2.0", "id": int(ID), "method": "tools/call", "params": {"name": "echo"}}
        found = rates({
            "bare": Target(bare, http_request(bare, json.dumps(call).encode(), HEADERS), 400),
            "sdk": Target(f"{sdk}/mcp", tool_call(f"{sdk}/mcp", "echo", ARGUMENTS), 60),
            "ours": Target(f"{ours}/mcp", tool_call(f"{ours}/mcp", "echo", ARGUMENTS), 400),
        })  # fmt: skip
    what = "built-in tools/call, calls/s"
    report.rounds(what, found["ours"], "official SDK server, calls/s", found["sdk"], at_least=8)
    report.rounds(what, found["ours"], "bare ASGI app, answers/s", found["bare"], at_least=0.4)


if __name__ == "__main__":
    main()
