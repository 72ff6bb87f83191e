"""An MCP server made with the official SDK whose tools ask the client, each in the way of its era."""

from __future__ import annotations

import socket
import sys
from typing import Annotated

import anyio
import mcp_types as types
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp.server.request_state import RequestStateSecurity
from pydantic import BaseModel

same_in_every_process = RequestStateSecurity(keys=["k" * 32])
server = MCPServer("asking", version="1.0", request_state_security=same_in_every_process)
RUNS = sys.argv[2] if len(sys.argv) > 2 else ""


class Name(BaseModel):
    name: str


async def asked_name() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


async def asked_model() -> Sample:
    content = types.TextContent(type="text", text="Say something.")
    return Sample([types.SamplingMessage(role="user", content=content)], max_tokens=10)


async def asked_roots() -> ListRoots:
    return ListRoots()


@server.tool()
async def greet(answer: Annotated[ElicitationResult[Name], Resolve(asked_name)]) -> str:
    """Asks for a name."""
    if RUNS:
        with open(RUNS, "a", encoding="utf-8") as file:
            file.write("greeted\n")
    return f"Hello {answer.data.name}" if answer.action == "accept" else f"no name: {answer.action}"


@server.tool()
async def think(answer: Annotated[types.CreateMessageResult, Resolve(asked_model)]) -> str:
    """Asks the client's model."""
    assert isinstance(answer.content, types.TextContent)
    return f"It says {answer.content.text}"


@server.tool()
async def where(answer: Annotated[types.ListRootsResult, Resolve(asked_roots)]) -> str:
    """Asks for the roots."""
    return ", ".join(str(root.uri) for root in answer.roots) or "nowhere"


@server.tool()
async def steps(count: int, ctx: Context) -> str:
    """Reports progress `count` times."""
    for step in range(count):
        await ctx.report_progress(step + 1, count, f"step {step + 1}")
    return "done"


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


PAPER = "news://paper"
FOLLOWED: set[str] = set()
"""What legacy clients have subscribed to."""


@server.resource(PAPER)
def paper() -> str:
    """The latest news."""
    return "nothing new"


@server.resource("news://gazette")
def gazette() -> str:
    """Other news."""
    return "nothing either"


@server.tool()
async def print_news(ctx: Context) -> str:
    """Tells followers of both resources that they changed; says what legacy clients follow."""
    for uri in (PAPER, "news://gazette"):
        await ctx.notify_resource_updated(uri)
        if uri in FOLLOWED:
            await ctx.session.send_resource_updated(uri)
    return ", ".join(sorted(FOLLOWED))


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
async def chatter(ctx: Context) -> str:
    """Logs two messages about the call, and to legacy clients two about nothing; says at which level."""
    for level in ("info", "warning"):
        await ctx.session.send_log_message(level, {"about": "the call"}, "talker", ctx.request_id)  # pyright: ignore[reportDeprecated]
    for level in ("info", "warning"):
        await ctx.session.send_log_message(level, {"about": "nothing"}, "talker")  # pyright: ignore[reportDeprecated]
    return LEVELS[-1] if LEVELS else "as I like"


LEVELS: list[str] = []
"""What legacy clients wanted to hear, the latest last."""


async def set_level(ctx: object, params: types.SetLevelRequestParams) -> types.EmptyResult:
    LEVELS.append(params.level)
    return types.EmptyResult()


async def subscribe(ctx: object, params: types.SubscribeRequestParams) -> types.EmptyResult:
    FOLLOWED.add(str(params.uri))
    return types.EmptyResult()


async def unsubscribe(ctx: object, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    FOLLOWED.discard(str(params.uri))
    return types.EmptyResult()


lowlevel = server._lowlevel_server  # pyright: ignore[reportPrivateUsage]
lowlevel.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
lowlevel.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
lowlevel.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)


def main() -> None:
    if sys.argv[1] == "stdio":
        server.run("stdio")
        return
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"serving http://127.0.0.1:{listener.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
