"""A legacy MCP server over HTTP whose answers a test can choose, and which remembers what it was sent."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from nanobot.aio import task_group

Answer = Response | None


@dataclass
class Asked:
    """One request as it arrived."""

    verb: str
    headers: dict[str, str]
    message: dict[str, Any]

    @property
    def method(self) -> str:
        return self.message.get("method", "")


@dataclass
class Peer:
    """`on_request` may answer anything its own way, except by None, which leaves it to the peer."""

    on_request: Callable[[Asked], Awaitable[Answer]]
    session: str = "first"
    asked: list[Asked] = field(default_factory=list[Asked])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        body = await request.body()
        asked = Asked(request.method, dict(request.headers), json.loads(body) if body else {})
        self.asked.append(asked)
        await (await self.on_request(asked) or self._usual(asked))(scope, receive, send)

    def _usual(self, asked: Asked) -> Response:
        if asked.verb != "POST":
            return Response(status_code=405)
        if asked.method == "initialize":
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "peer", "version": "1"},
            }
            return answer(asked, result, headers={"Mcp-Session-Id": self.session})
        if asked.method == "server/discover":
            return Response(status_code=400)
        if "id" not in asked.message or "method" not in asked.message:
            return Response(status_code=202)
        return answer(asked, {"of": asked.method})

    def times(self, method: str) -> int:
        return sum(asked.method == method for asked in self.asked)


def answer(asked: Asked, result: Any, **more: Any) -> JSONResponse:
    return JSONResponse(reply(asked, result), **more)


def reply(asked: Asked, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": asked.message["id"], "result": result}


def events(*parts: str | Awaitable[Any], **more: Any) -> StreamingResponse:
    """A stream of these texts; anything awaitable between them is waited for."""

    async def body() -> AsyncGenerator[str]:
        for part in parts:
            if isinstance(part, str):
                yield part
            else:
                await part

    return StreamingResponse(body(), media_type="text/event-stream", **more)


def event(message: Any, **fields: Any) -> str:
    head = "".join(f"{name}: {value}\n" for name, value in fields.items())
    return f"{head}data: {json.dumps(message) if message is not None else ''}\n\n"


@asynccontextmanager
async def serving(app: Any, port: int = 0) -> AsyncGenerator[str]:
    """`app` on a free (or the given) port of loopback; its address."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
    listener = socket.create_server(("127.0.0.1", port))
    async with task_group() as group:
        group.start_soon(server.serve, [listener])
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        server.should_exit = server.force_exit = True
