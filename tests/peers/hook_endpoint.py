"""A web service that hooks are sent to: what it is sent, and what it answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, bytes]


@dataclass
class Endpoint:
    url: str = ""
    received: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)


@contextmanager
def hook_endpoint(reply: Callable[[Any], Reply], *, hangs: bool = False) -> Generator[Endpoint]:
    """Answers each POST with `reply(payload)`: status and body. If it `hangs`, only when it is closed."""
    endpoint = Endpoint()
    if not hangs:
        endpoint.gate.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            endpoint.received.append(({k.lower(): v for k, v in self.headers.items()}, body))
            endpoint.gate.wait()
            status, answer = reply(json.loads(body))
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
            except OSError:
                pass  # who hangs is left

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    endpoint.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield endpoint
    finally:
        endpoint.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()
