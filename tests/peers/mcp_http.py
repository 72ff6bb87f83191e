"""An MCP client of the legacy era that shows what is on the wire: one request at a time, over plain HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "User-Agent": "test-client",
}


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class HttpClient:
    """Ids count from 1: `initialize` is the first request."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, path: str = "/mcp") -> None:
        self.session = ""
        self._place = urlsplit(url).netloc
        self._path = path
        self._headers = {**HEADERS, **(headers or {})}
        self._ids = 0

    def initialize(self, name: str = "t", version: str = "1") -> Reply:
        reply = self.request(
            "initialize",
            {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": name, "version": version},
            },
        )
        self.session = reply.headers["mcp-session-id"]
        self.post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return reply

    def request(self, method: str, params: Any = None) -> Reply:
        self._ids += 1
        message: Any = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params or {}}
        return self.post(json.dumps(message).encode())

    def post(self, body: bytes, headers: Mapping[str, str] | None = None) -> Reply:
        return self._send("POST", body, headers)

    def get(self) -> Reply:
        return self._send("GET", None, None)

    def delete(self) -> Reply:
        return self._send("DELETE", None, None)

    @contextlib.contextmanager
    def stream(self) -> Generator[http.client.HTTPResponse]:
        """The stream that a client opens for what belongs to no request."""
        connection = http.client.HTTPConnection(self._place, timeout=20)
        connection.request("GET", self._path, headers=self._sent({"Accept": "text/event-stream"}))
        with contextlib.closing(connection), connection.getresponse() as response:
            yield response

    def _send(self, method: str, body: bytes | None, headers: Mapping[str, str] | None) -> Reply:
        connection = http.client.HTTPConnection(self._place, timeout=20)
        with contextlib.closing(connection):
            connection.request(method, self._path, body=body, headers=self._sent(headers or {}))
            with connection.getresponse() as response:
                names = {name.lower(): value for name, value in response.getheaders()}
                return Reply(response.status, names, response.read())

    def _sent(self, headers: Mapping[str, str]) -> dict[str, str]:
        session = {"Mcp-Session-Id": self.session} if self.session else {}
        return {**self._headers, **session, **headers}
