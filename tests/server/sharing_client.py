"""Clients of several accounts, each of which can have a process behind nanobot run something for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import anyio
from tests.server.world import Served

from nanobot.config.model import ApiKey, AuthSettings
from nanobot.sse import SseParser

KEYS = {name: f"nb-{name.replace(' ', '-')}-CANARYaaaaaaaa" for name in ("ann", "ann renewed", "bob")}
"""Of the accounts `ann`, who has two, and `bob`."""
AUTH = AuthSettings(
    api_keys=tuple(
        ApiKey(name=name.partition(" ")[0], sha256=hashlib.sha256(key.encode()).hexdigest())
        for name, key in KEYS.items()
    )
)
MODERN = "2026-07-28"
ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class SharingClient:
    """One client. `session` "" until a legacy one has begun; a modern one has none."""

    def __init__(self, nanobot: Served, account: str = "") -> None:
        self._nanobot = nanobot
        self.headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **({"Authorization": f"Bearer {KEYS[account]}"} if account else {}),
        }
        self.session = ""

    async def begin(self) -> SharingClient:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": ""},
        }
        answer = await self._post("initialize", params, self.headers)
        self.session = answer.headers["mcp-session-id"]
        self.headers["Mcp-Session-Id"] = self.session
        return self

    async def end(self) -> None:
        await self._nanobot.ask("DELETE", "/mcp", None, self.headers)

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer: `result` or `error`."""
        return _message((await self._post(method, params, self.headers)).body)

    async def ask_modern(self, method: str, **params: Any) -> dict[str, Any]:
        headers = self.headers | {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        if "name" in params:
            headers["Mcp-Name"] = params["name"]
        return _message((await self._post(method, params | {"_meta": ENVELOPE}, headers)).body)

    async def run(self, code: str, *, modern: bool = False) -> Any:
        """What `result` is after the server has run `code`."""
        ask = self.ask_modern if modern else self.ask
        answer = await ask("tools/call", name="attempt", arguments={"code": code})
        assert "result" in answer, answer
        return answer["result"]["result"]

    async def pid(self, *, modern: bool = False) -> int:
        return await self.run("import os; result = os.getpid()", modern=modern)

    async def tools(self) -> list[str]:
        return [tool["name"] for tool in (await self.ask("tools/list"))["result"]["tools"]]

    async def _post(self, method: str, params: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        with anyio.fail_after(60):
            return await self._nanobot.ask("POST", "/mcp", message, headers)


def _message(body: bytes) -> dict[str, Any]:
    """The answer in a body that is JSON or an event stream."""
    if body[:1] == b"{":
        return json.loads(body)
    events = [event for event in SseParser().feed(body) if event.data and not event.comment]
    return json.loads(events[-1].data)
