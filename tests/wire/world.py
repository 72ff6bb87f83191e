"""A small service and a real server around it, for tests of the listening side."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import uvicorn

from nanobot.config.model import ServerSettings, SessionSettings
from nanobot.errors import UpstreamTimeout, UpstreamUnavailable
from nanobot.wire.call import EVERYBODY, Audience, Call, Caller
from nanobot.wire.rpc import METHOD_NOT_FOUND, RESOURCE_NOT_FOUND, Payload, RpcError
from nanobot.wire.server_http import McpEndpoint
from nanobot.wire.service import Announced, Description

BOTH = "application/json, text/event-stream"
INFO = {"name": "tiny", "version": "1.0"}
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class TinyService:
    """Tools `echo`, `report` (progress and logs), `ask`, `wait` and some that fail in their own ways."""

    def __init__(self) -> None:
        self.capabilities: dict[str, Any] = {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True},
            "logging": {},
        }
        self.entered = anyio.Event()
        self.release = anyio.Event()
        self.was_cancelled = anyio.Event()
        self.followed: list[tuple[str, str]] = []
        self.callers: list[Caller] = []
        self._changed: list[Announced] = []

    async def describe(self, caller: Caller) -> Description:
        return Description(server_info=INFO, capabilities=self.capabilities, instructions="Be kind.")

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        self.callers.append(call.caller)
        match method:
            case "tools/list":
                tools = [
                    {"name": name, "inputSchema": {"type": "object"}} for name in ("ask", "echo", "report")
                ]
                return Payload.of({"tools": tools})
            case "resources/subscribe" | "resources/unsubscribe":
                self.followed.append((method, params.object()["uri"]))
                return Payload.of({})
            case "resources/read":
                raise RpcError(RESOURCE_NOT_FOUND, "no such resource", Payload.of({"uri": "x:y"}))
            case "tools/call":
                return await self._call(params.object(), call)
            case _:
                raise RpcError(METHOD_NOT_FOUND, f"unknown method {method!r}")

    def watch(self, changed: Announced) -> Callable[[], None]:
        self._changed.append(changed)
        return lambda: self._changed.remove(changed)

    def change(
        self, method: str, params: dict[str, Any] | None = None, audience: Audience = EVERYBODY
    ) -> None:
        for changed in tuple(self._changed):
            changed(method, Payload.of(params or {}), audience)

    async def _call(self, params: dict[str, Any], call: Call) -> Payload:
        assert call.notify is not None
        match params["name"]:
            case "echo":
                return text(json.dumps(params.get("arguments", {})))
            case "report":
                for value in (1, 1, 5):
                    call.notify("notifications/progress", Payload.of({"progress": value, "message": "going"}))
                for level in ("debug", "error"):
                    call.notify("notifications/message", Payload.of({"level": level, "data": level}))
                return text("reported")
            case "level":
                return text(str(call.log_level))
            case "flood":
                for number in range(1500):
                    call.notify("notifications/message", Payload.of({"level": "info", "data": number}))
                return text("flooded")
            case "hurry":
                for number in range(3000):
                    call.notify("notifications/progress", Payload.of({"progress": number}))
                return text("there")
            case "mumble":
                for method in ("notifications/progress", "notifications/message"):
                    call.notify(method, Payload.encoded(b"[1]"))
                    call.notify(method, Payload.of({"progress": "much", "level": {}, "data": 1}))
                return text("mumbled")
            case "ask":
                assert call.ask is not None
                answer = await call.ask(
                    "elicitation/create",
                    Payload.of({"message": "Name?", "requestedSchema": {"type": "object", "properties": {}}}),
                )
                return text(json.dumps(answer.object()))
            case "wait":
                self.entered.set()
                try:
                    await self.release.wait()
                finally:
                    if not self.release.is_set():
                        self.was_cancelled.set()
                return text("released")
            case "long":
                assert call.deferral is not None
                call.deferral.after(0)
                call.notify("notifications/progress", Payload.of({"progress": 1, "message": "begun"}))
                if params["arguments"].get("hold"):
                    await self._call({"name": "wait"}, call)
                return await self._call({**params, "name": params["arguments"]["as"]}, call)
            case "spread":  # as a peer may write it
                return Payload.encoded(b'{\r\n  "content": [],\n  "odd": {"kept": [1, 2.50]}\n}')
            case "unavailable":
                raise UpstreamUnavailable("far", "connection refused")
            case "late":
                raise UpstreamTimeout("far", 3)
            case "bug":
                raise ZeroDivisionError("secret detail")
            case "unserialisable":
                return Payload.of({"content": [object()]})
            case other:
                raise RpcError(-32602, f"unknown tool {other!r}")


def text(words: str) -> Payload:
    return Payload.of({"content": [{"type": "text", "text": words}]})


class Client:
    """Raw HTTP towards one endpoint."""

    def __init__(self, http: httpx2.AsyncClient, url: str, endpoint: McpEndpoint) -> None:
        self.http = http
        self.endpoint = endpoint
        self.url = url
        self.headers = {"content-type": "application/json", "accept": BOTH}

    async def post(self, body: Any, **headers: str) -> httpx2.Response:
        """POST `body` (bytes as they are, else as JSON); a header of "" is left out."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post(self.url, content=content, headers=self.merged(headers))

    @asynccontextmanager
    async def events(self, method: str, body: Any = None, **headers: str) -> AsyncGenerator[Events]:
        content = None if body is None else json.dumps(body).encode()
        async with self.http.stream(
            method, self.url, content=content, headers=self.merged(headers)
        ) as response:
            yield Events(response)

    async def initialize(self, version: str = "2025-11-25", **headers: str) -> httpx2.Response:
        """Open a session and use it from now on."""
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        answer = await self.post(rpc("initialize", params, id="init"), **headers)
        if "mcp-session-id" in answer.headers:
            self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        return answer

    def merged(self, headers: dict[str, str]) -> dict[str, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return {name: value for name, value in {**self.headers, **named}.items() if value}


class Events:
    """The events of one answer, one after the other, as dicts of their fields."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self) -> dict[str, str]:
        """The next event. A comment is an event `{"": text}`. Raises `StopAsyncIteration` at the end."""
        fields: dict[str, str] = {}
        while True:
            line = await anext(self._lines)
            if line:
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
            elif fields:
                return fields

    async def message(self) -> Any:
        """The next event that carries a message, decoded; or the only one of an answer that is JSON."""
        if self.response.headers["content-type"] == "application/json":
            return json.loads(await self.response.aread())
        while True:
            event = await self.next()
            if event.get("data"):
                return json.loads(event["data"])

    async def rest(self) -> list[Any]:
        """All messages up to the end."""
        messages: list[Any] = []
        try:
            while True:
                messages.append(await self.message())
        except StopAsyncIteration:
            return messages


def rpc(method: str, params: Any = None, *, id: Any = None) -> dict[str, Any]:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return message if id is None else {**message, "id": id}


def tool(name: str, *, id: Any = 1, meta: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    if meta is not None:
        params["_meta"] = meta
    return rpc("tools/call", params, id=id)


def modern(method: str, params: dict[str, Any] | None = None, *, id: Any = 1, **meta: Any) -> dict[str, Any]:
    return rpc(method, {**(params or {}), "_meta": {**META, **meta}}, id=id)


@asynccontextmanager
async def serving(
    service: TinyService,
    *,
    settings: ServerSettings | None = None,
    sessions: SessionSettings | None = None,
    wrap: Callable[[Any], Any] = lambda app: app,
    **options: Any,
) -> AsyncGenerator[Client]:
    """The service behind a real HTTP server on a free port, and a client of it. `wrap`: an app in front."""
    endpoint = McpEndpoint(
        service,
        settings=settings or ServerSettings(),
        session_settings=sessions or SessionSettings(),
        **options,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        wrap(endpoint), log_level="warning", lifespan="off", ws="none", timeout_graceful_shutdown=5
    )
    server = _Server(config)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    async with anyio.create_task_group() as group:
        await group.start(endpoint.run)
        group.start_soon(server.serve, [listener])
        try:
            async with httpx2.AsyncClient(timeout=10) as http:
                yield Client(http, url, endpoint)
        finally:
            endpoint.close()
            server.should_exit = True
        with anyio.fail_after(10):
            await server.stopped.wait()
        group.cancel_scope.cancel()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stopped = anyio.Event()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await self._serve(sockets)
        finally:
            self.stopped.set()


App = Callable[[Any, Any, Any], Awaitable[None]]


def account_from_header(app: App) -> App:
    """Stands for the authenticator: header `x-account` names the account."""

    async def authenticated(scope: Any, receive: Any, send: Any) -> None:
        account = dict(scope["headers"]).get(b"x-account", b"").decode()
        await app({**scope, "state": {"account": account}}, receive, send)

    return authenticated
