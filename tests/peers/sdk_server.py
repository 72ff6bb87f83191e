"""An MCP server made with the official SDK, run as a process: `sdk_server.py stdio`, or `… http [json]`.

Over HTTP it prints the address it serves. It speaks whichever era the client opens with.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Annotated

import anyio
from mcp import MCPError
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel, Field

server = MCPServer("oracle", version="7.0", instructions="Ask me anything.")


class Name(BaseModel):
    name: str


@server.tool()
async def echo(text: str) -> str:
    """Says it again."""
    return text


@server.tool()
async def steps(count: int, ctx: Context) -> str:
    """Reports progress `count` times."""
    for step in range(count):
        await ctx.report_progress(step + 1, count, f"step {step + 1}")
    return "done"


async def asked_name() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


@server.tool()
async def greet(answer: Annotated[ElicitationResult[Name], Resolve(asked_name)]) -> str:
    """Asks for a name, in the way of the era, and greets it."""
    return f"Hello {answer.data.name}" if answer.action == "accept" else f"no name: {answer.action}"


@server.tool()
async def speak(ctx: Context) -> str:
    """Writes to the log."""
    await ctx.info("a word")  # pyright: ignore[reportDeprecated]  # of the era that some clients still speak
    return "spoken"


@server.tool()
async def knock(ctx: Context) -> str:
    """Pings the client; says what came back."""
    try:
        return repr((await ctx.session.send_ping()).meta)
    except MCPError as e:
        return f"{e.error.code} {e.error.message}"


@server.tool()
async def caller(ctx: Context) -> str:
    """The name of the client."""
    client = ctx.session.client_params
    return client.client_info.name if client is not None else ""


@server.tool()
async def wait_for_cancellation(path: str) -> str:
    """Waits for ever; leaves a file at `path` when it is cancelled."""
    with open(path + ".started", "w", encoding="utf-8"):
        pass
    try:
        await anyio.sleep_forever()
    finally:
        with open(path, "w", encoding="utf-8"):
            pass
    raise AssertionError


@server.tool()
async def grow(ctx: Context) -> str:
    """Adds a tool (once) and says that the list changed."""

    def grown() -> str:
        return "new"

    server.add_tool(grown)
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "grown"


@server.tool()
async def die() -> str:
    """Ends the process at once."""
    os._exit(3)


@server.tool()
async def locate(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Takes an argument that must also travel in a header."""
    return region


@server.prompt()
def hello(name: str) -> str:
    """A greeting."""
    return f"Say hello to {name}"


@server.resource("note://one")
def note() -> str:
    """A note."""
    return "remember"


def main() -> None:
    if sys.argv[1] == "stdio":
        server.run("stdio")
        return
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    app = server.streamable_http_app(json_response="json" in sys.argv)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
