"""Many clients with equal ids behind one connection to one server: nothing reaches another one (R9)."""

from __future__ import annotations

import os
import sys
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.hub.world import config, refs
from tests.hub.world import running as hub_over
from tests.upstream.world import pooled

from nanobot.config.model import McpServer, Publish, ServerSettings
from nanobot.hub.publish import Publisher
from nanobot.wire.server_duplex import serve_duplex

pytestmark = pytest.mark.anyio

CLIENTS = 200
CALLS = int(os.environ.get("ISOLATION_CALLS", "100_000")) // CLIENTS
"""Of each."""
AT_ONCE = 10
PROGRESS_EVERY = 10

SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    id, method, params = message["id"], message["method"], message.get("params", {})
    said = []
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "echo", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    else:
        token = params.get("_meta", {}).get("progressToken")
        text = json.dumps(params["arguments"])
        if token is not None:
            said.append({"method": "notifications/progress",
                         "params": {"progressToken": token, "progress": 1, "message": text}})
        result = {"content": [{"type": "text", "text": text}]}
    said.append({"id": id, "result": result})
    sys.stdout.write("".join(json.dumps({"jsonrpc": "2.0", **one}) + "\\n" for one in said))
    sys.stdout.flush()
"""


class Client:
    """A client's line, seen from the server: what it sends, and a check of whatever it is sent.

    Every client uses the same ids and progress tokens. It is no task of its own, so that a hundred thousand
    calls take seconds and not minutes.
    """

    def __init__(self, name: int) -> None:
        self.answered = 0
        self.progressed = 0
        self._name = name
        self._next_id = 0
        self._outgoing: deque[bytes] = deque()
        self._has_more = anyio.Event()
        self._say("initialize", {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": ""},
        })  # fmt: skip

    async def receive(self) -> bytes:
        while not self._outgoing:
            if self.answered == CALLS:
                raise anyio.EndOfStream
            self._has_more = anyio.Event()
            await self._has_more.wait()
        return self._outgoing.popleft()

    async def send(self, message: bytes) -> None:
        said = msgspec.json.decode(message)
        if said.get("id") == 0:
            for _ in range(AT_ONCE):
                self._call()
        elif "method" in said:
            self._check(said["params"]["message"], said["params"]["progressToken"])
            self.progressed += 1
        else:
            self._check(said["result"]["content"][0]["text"], said["id"])
            self.answered += 1
            self._call()
        self._has_more.set()

    async def aclose(self) -> None:
        pass

    def _check(self, text: str, id: int) -> None:
        assert msgspec.json.decode(text) == {"client": self._name, "call": id}

    def _call(self) -> None:
        if self._next_id > CALLS:
            return
        params: dict[str, Any] = {"name": "echo", "arguments": {"client": self._name, "call": self._next_id}}
        if self._next_id % PROGRESS_EVERY == 0:
            params["_meta"] = {"progressToken": self._next_id}
        self._say("tools/call", params)

    def _say(self, method: str, params: dict[str, Any]) -> None:
        message = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}
        self._outgoing.append(msgspec.json.encode(message))
        self._next_id += 1


async def test_r9_no_answer_and_no_progress_of_very_many_calls_reaches_another_client(
    tmp_path: Path,
) -> None:
    (tmp_path / "echo.py").write_text(SERVER)
    echo = McpServer(
        name="echo",
        command=sys.executable,
        args=(str(tmp_path / "echo.py"),),
        sandbox=None,
        sharing="global",
    )
    settings = config(publish=Publish(mcp_servers=refs("echo")), mcp_servers={"echo": echo})
    clients = [Client(name) for name in range(CLIENTS)]
    async with pooled(echo) as pools, hub_over(settings, pools["echo"]) as hub:
        publisher = Publisher(settings, hub, version="1")
        async with anyio.create_task_group() as group:
            for client in clients:
                group.start_soon(partial(serve_duplex, client, publisher, settings=ServerSettings()))
        assert pools["echo"].state().connections == 1
    assert sum(client.answered for client in clients) == CLIENTS * CALLS
    assert sum(client.progressed for client in clients) == CLIENTS * CALLS // PROGRESS_EVERY
