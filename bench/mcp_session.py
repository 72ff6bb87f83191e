"""An MCP session over raw HTTP, and the bytes of a `tools/call` in one."""

from __future__ import annotations

import json
import urllib.request
from types import TracebackType

from load import ID, http_request

HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


class McpSession:
    """A legacy session at `url`, opened and ended with a `with` block."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.headers = dict(HEADERS)

    def __enter__(self) -> McpSession:
        client = {"name": "bench", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        self._post("initialize", hello, 0)
        self.headers["MCP-Protocol-Version"] = "2025-11-25"
        self._post("notifications/initialized", {})
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, where: TracebackType | None) -> None:
        if "Mcp-Session-Id" in self.headers:
            request = urllib.request.Request(self.url, headers=self.headers, method="DELETE")
            urllib.request.urlopen(request, timeout=60).close()

    def call(self, tool: str, arguments: dict) -> dict:
        """The result of the tool. Raises `RuntimeError` if it does not work."""
        answer = self._post("tools/call", {"name": tool, "arguments": arguments}, 1)
        if "result" not in answer or answer["result"].get("isError"):
            raise RuntimeError(f"{self.url}: {tool} does not work: {answer}")
        return answer["result"]

    def _post(self, method: str, params: dict, id: int | None = None) -> dict:
        message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if id is None else {"id": id})
        request = urllib.request.Request(self.url, json.dumps(message).encode(), self.headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            if session := answer.headers.get("Mcp-Session-Id"):
                self.headers["Mcp-Session-Id"] = session
            text = answer.read().decode()
        if "data:" in text:  # a stream; its last event that carries data is the answer
            datas = [line[5:] for line in text.splitlines() if line.startswith("data:")]
            text = next(data for data in reversed(datas) if data.strip())
        return json.loads(text) if text.strip() else {}


def tool_call(url: str, tool: str, arguments: dict) -> bytes:
    """Initialise a legacy session at `url`, check that the tool answers, and return its call as bytes."""
    session = McpSession(url).__enter__()  # it stays: the bytes are sent in it
    session.call(tool, arguments)
    params = {"name": tool, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": int(ID), "method": "tools/call", "params": params}
    return http_request(url, json.dumps(message, separators=(",", ":")).encode(), session.headers)
