"""Tools with a user interface of their own: what passes through, and who sees what."""

from __future__ import annotations

from typing import Any

import pytest
from tests.hub.world import Server, config, refs, running

from nanobot.config.model import Publish
from nanobot.hub.publish import Publisher
from nanobot.wire.call import Call, Caller
from nanobot.wire.rpc import Payload, RpcError

pytestmark = pytest.mark.anyio

UI = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
SHOWS = Caller(capabilities={"extensions": UI})
SHOWS_NOTHING = Caller(capabilities={})


def tool(name: str, **meta: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": {}}, "_meta": meta}


CLOCK = tool(
    "clock",
    **{
        "ui": {"resourceUri": "ui://clock/page.html", "csp": {"connectDomains": []}, "prefersBorder": True},
        "ui/resourceUri": "ui://clock/page.html",
    },
)
REFRESH = tool("refresh", ui={"visibility": ["app"]})
BOTH = tool("both", ui={"visibility": ["model", "app"]})


async def names(publisher: Publisher, caller: Caller) -> list[str]:
    listed = await publisher.request("tools/list", Payload.of({}), Call(caller=caller))
    return [one["name"] for one in listed.object()["tools"]]


async def test_what_a_tool_says_of_its_app_passes_unchanged() -> None:
    settings = config(publish=Publish(mcp_servers=refs("s")))
    async with running(settings, Server("s", [CLOCK])) as hub:
        publisher = Publisher(settings, hub, version="1")
        listed = await publisher.request("tools/list", Payload.of({}), Call(caller=SHOWS_NOTHING))
        assert listed.object()["tools"] == [CLOCK]
        description = await publisher.describe(SHOWS)
        assert description.capabilities["extensions"] == UI


async def test_a_tool_for_apps_alone_is_shown_only_to_clients_that_show_apps() -> None:
    settings = config(publish=Publish(mcp_servers=refs("s"), tools=refs("s/refresh:again")))
    server = Server("s", [CLOCK, REFRESH, BOTH])
    async with running(settings, server) as hub:
        publisher = Publisher(settings, hub, version="1")
        assert await names(publisher, SHOWS) == ["again", "both", "clock", "refresh"]
        assert await names(publisher, SHOWS_NOTHING) == ["both", "clock"]
        call = Payload.of({"name": "refresh"})
        with pytest.raises(RpcError, match="unknown tool 'refresh'"):
            await publisher.request("tools/call", call, Call(caller=SHOWS_NOTHING))
        assert server.asked == []
        await publisher.request("tools/call", call, Call(caller=SHOWS))
        assert [method for method, _ in server.asked] == ["tools/call"]
