"""Opens an MCP session over raw HTTP and gives the bytes of a `tools/call` in it."""

from __future__ import annotations

import json
import urllib.request

from load import ID, http_request

HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


def tool_call(url: str, tool: str, arguments: dict) -> bytes:
    """Initialise a legacy session at `url`, check that the tool answers, and return its call as bytes."""
    headers = dict(HEADERS)

    def post(method: str, params: dict, id: int | None = None) -> dict:
        message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if id is None else {"id": id})
        request = urllib.request.Request(url, json.dumps(message).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            if session := answer.headers.get("Mcp-Session-Id"):
                headers["Mcp-Session-Id"] = session
            text = answer.read().decode()
        if "data:" in text:
            text = text.split("data:", 1)[1].split("\n", 1)[0]
        return json.loads(text) if text.strip() else {}

    client = {"name": "bench", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    post("initialize", hello, 0)
    headers["MCP-Protocol-Version"] = "2025-11-25"
    post("notifications/initialized", {})
    params = {"name": tool, "arguments": arguments}
    answer = post("tools/call", params, 1)
    if "result" not in answer or answer["result"].get("isError"):
        raise RuntimeError(f"{url}: {tool} does not work: {answer}")
    message = {"jsonrpc": "2.0", "id": int(ID), "method": "tools/call", "params": params}
    return http_request(url, json.dumps(message, separators=(",", ":")).encode(), headers)
