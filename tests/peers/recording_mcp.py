"""An MCP server over HTTP (legacy era) on loopback that keeps what it is sent: headers and messages."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOOL = {"name": "note", "inputSchema": {"type": "object", "properties": {"fail": {"type": "boolean"}}}}


@dataclass
class RecordingServer:
    """`calls`: headers (lower-case names) and params of every `tools/call`; `methods`: of every request.

    The tool answers `noted`, or an error with a secret in its text when it is told to `fail`.
    """

    url: str = ""
    secret: str = "the-server-said-a-s3cret"
    calls: list[tuple[Mapping[str, str], Any]] = field(default_factory=list[tuple[Mapping[str, str], Any]])
    methods: list[str] = field(default_factory=list[str])

    def answer(self, message: Any, headers: Mapping[str, str]) -> Any:
        result: Any
        self.methods.append(message["method"])
        match message["method"]:
            case "initialize":
                info = {"name": "recorder", "version": "1"}
                result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                result = {"tools": [TOOL]}
            case "tools/call":
                self.calls.append((headers, message["params"]))
                if message["params"]["arguments"].get("fail"):
                    return {"error": {"code": -32000, "message": f"no: {self.secret}"}}
                result = {"content": [{"type": "text", "text": "noted"}]}
            case _:
                return {"error": {"code": -32601, "message": "unknown method"}}
        return {"result": result}


@contextlib.contextmanager
def recording() -> Generator[RecordingServer]:
    peer = RecordingServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            headers = {name.lower(): value for name, value in self.headers.items()}
            if "id" not in message:
                self._send(202, b"")
                return
            answer = {"jsonrpc": "2.0", "id": message["id"], **peer.answer(message, headers)}
            self._send(200, json.dumps(answer).encode())

        def do_GET(self) -> None:
            self._send(405, b"")

        do_DELETE = do_GET

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    peer.url = f"http://127.0.0.1:{server.server_address[1]}/mcp"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield peer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
