"""An HTTP endpoint on loopback that keeps what it is sent, and answers as the test wants."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WAIT_S = 20


@dataclass(frozen=True)
class Received:
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answer = Callable[[Received], int]
"""The status for a request."""


@dataclass
class Collector:
    """`answer` may be replaced at any time. `received` holds every request, refused ones too."""

    answer: Answer = lambda request: 204
    received: list[Received] = field(default_factory=list)
    accepted: list[Received] = field(default_factory=list)
    port: int = 0
    _news: threading.Condition = field(default_factory=threading.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def entries(self) -> list[Any]:
        """The members of all accepted arrays."""
        return [entry for request in self.accepted for entry in request.json]

    def take(self, request: Received) -> int:
        with self._news:
            status = self.answer(request)
            self.received.append(request)
            if 200 <= status < 300:
                self.accepted.append(request)
            self._news.notify_all()
        return status

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait until `until()` holds; it is looked at whenever a request has come."""
        with self._news:
            assert self._news.wait_for(until, WAIT_S), self.received


@contextlib.contextmanager
def collecting(answer: Answer = lambda request: 204, *, port: int = 0) -> Generator[Collector]:
    """A running collector, on a free port if none is given."""
    collector = Collector(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.send_response(collector.take(Received(self.path, headers, body)))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", port), Handler)
    collector.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
