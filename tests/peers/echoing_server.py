"""An MCP server that repeats whatever it was ever sent, wherever it can: on stderr, in errors, in its logs.

    echoing_server.py ERA stdio|PORT

ERA is legacy or modern. Its tools are named after the way in which they repeat it. Only `own` does not.
"""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

ERA, WHERE = sys.argv[1:3]
TOOLS = ("own", "error", "status", "forbid", "redirect", "junk", "log", "die")
HEARD: list[str] = [secret] if (secret := os.environ.get("ECHO_SECRET")) else []
ABOUT: dict[str, Any] = {"tools": {"listChanged": True}, "logging": {}}


def hear(*values: str) -> None:
    HEARD.extend(value for value in values if value and value not in HEARD)
    print("I was sent", *HEARD, file=sys.stderr, flush=True)


def said() -> str:
    return " / ".join(HEARD)


def told() -> dict[str, Any]:
    params = {"level": "error", "data": {"heard": HEARD, "path": "a/b\n" + said()}}
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": params}


def outcome(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The members of the answer beside its id."""
    info = {"name": "echo", "version": said()}
    match method:
        case "initialize" if ERA == "legacy":
            return {"result": {"protocolVersion": "2025-11-25", "capabilities": ABOUT, "serverInfo": info}}
        case "server/discover" if ERA == "modern":
            about = {"supportedVersions": ["2026-07-28"], "capabilities": ABOUT}
            return {"result": {**about, "_meta": {"io.modelcontextprotocol/serverInfo": info}}}
        case "tools/list":
            return {"result": {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in TOOLS]}}
        case "tools/call" if params["name"] in ("own", "log"):
            return {"result": {"content": [{"type": "text", "text": "done"}]}}
        case "tools/call":
            return refused(-32000, f"no: {said()}")
        case "ping" | "logging/setLevel":
            return {"result": {}}
        case _:
            return refused(-32601, f"unknown method; I know {said()}")


def refused(code: int, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "data": {"heard": HEARD}}}


def stdio() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        params = message.get("params", {})
        tool = params.get("name", "")
        hear(str(params.get("arguments", {}).get("note", "")))
        if tool == "die":
            os._exit(3)
        if tool == "junk":
            print("no message: " + said(), flush=True)
        if tool == "log" or message["method"] == "tools/list":  # no caller waits for the latter
            print(json.dumps(told()), flush=True)
        if "id" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], **outcome(message["method"], params)}
            print(json.dumps(answer), flush=True)
        if tool == "own":
            changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            print(json.dumps(changed), flush=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        token = self.headers.get("Authorization", "").rpartition(" ")[2]
        hear(token, self.headers.get("X-Team", ""))
        if "id" not in message:
            return self.reply(202)
        params = message.get("params", {})
        answer = {"jsonrpc": "2.0", "id": message["id"], **outcome(message["method"], params)}
        match params.get("name") if message["method"] == "tools/call" else "":
            case "die":
                os._exit(3)
            case "status":
                return self.reply(500, said().encode())
            case "forbid":
                return self.reply(403, json.dumps(answer).encode())
            case "redirect":
                return self.reply(307, location="http://elsewhere.invalid/" + quote(said(), safe="/"))
            case "junk":
                return self.reply(200, f"data: no message: {said()}\n\n".encode(), "text/event-stream")
            case "log":
                events = "".join(f"data: {json.dumps(one)}\n\n" for one in (told(), answer))
                return self.reply(200, events.encode(), "text/event-stream")
            case _:
                return self.reply(200, json.dumps(answer).encode())

    def do_GET(self) -> None:
        self.reply(405, said().encode())

    do_DELETE = do_GET

    def reply(
        self, status: int, body: bytes = b"", kind: str = "application/json", location: str = ""
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


if __name__ == "__main__":
    if WHERE == "stdio":
        stdio()
    else:
        ThreadingHTTPServer(("127.0.0.1", int(WHERE)), Handler).serve_forever()
