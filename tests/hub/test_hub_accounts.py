"""Lists of servers that may show each account something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import pytest
from tests.hub.world import Server, config, refs, tool

from nanobot.aio import task_group
from nanobot.config.model import Publish
from nanobot.errors import UpstreamUnavailable
from nanobot.hub.hub import MAX_ACCOUNTS, Hub
from nanobot.hub.publish import Publisher
from nanobot.wire.call import NOBODY, Audience, Call, Caller
from nanobot.wire.rpc import Payload, RpcError
from nanobot.wire.source import Entry, Kind

pytestmark = pytest.mark.anyio

ANN, BOB = Caller(account="ann"), Caller(account="bob")


class Personal(Server):
    """Shows each account a tool of its own, beside those that everybody has."""

    def __init__(self, name: str, own: Mapping[str, str], everybodys: Sequence[str] = ()) -> None:
        super().__init__(name, [tool(one) for one in everybodys])
        self.own = dict(own)
        self.listed_for: list[str] = []
        self.down_for: set[str] = set()

    async def listing(self, kind: Kind, caller: Caller = NOBODY) -> Sequence[Entry]:
        self.listed_for.append(caller.account)
        if caller.account in self.down_for:
            raise UpstreamUnavailable(self.name, "it knows you not")
        entries = await super().listing(kind, caller)
        if kind == "tools" and caller.account in self.own:
            entries = [*entries, Entry(self.own[caller.account], Payload.of(tool(self.own[caller.account])))]
        return entries


async def names(publisher: Publisher, caller: Caller) -> list[str]:
    answer: dict[str, Any] = (
        await publisher.request("tools/list", Payload(b"{}"), Call(caller=caller))
    ).object()
    return [one["name"] for one in answer["tools"]]


async def test_each_account_sees_and_calls_what_it_was_shown_alone() -> None:
    server, shared = Personal("p", {"ann": "a", "bob": "b"}, ["x"]), Server("s", [tool("y")])
    settings = config(publish=Publish(mcp_servers=refs("p", "s")))
    async with task_group() as group:
        hub = Hub(settings, {"p": server, "s": shared}, personal={"p"})
        await group.start(hub.run)
        publisher = Publisher(settings, hub, version="1")
        assert await names(publisher, ANN) == ["a", "x", "y"]
        assert await names(publisher, BOB) == ["b", "x", "y"]
        assert shared.listed == ["tools"]
        call = Payload.of({"name": "b", "arguments": {}})
        assert await publisher.request("tools/call", call, Call(caller=BOB))
        with pytest.raises(RpcError, match="unknown tool 'b'"):
            await publisher.request("tools/call", call, Call(caller=ANN))
        assert publisher.server_of("tools/call", "b", "bob") == "p"
        assert publisher.server_of("tools/call", "b", "ann") == ""
        group.cancel_scope.cancel()


async def test_a_server_that_fails_for_one_account_fails_for_no_other() -> None:
    server = Personal("p", {}, ["x"])
    server.down_for.add("bob")
    async with task_group() as group:
        hub = Hub(config(), {"p": server}, personal={"p"})
        await group.start(hub.run)
        assert [one.name for one in (await hub.tools(refs("p"), ANN)).items] == ["x"]
        failed = await hub.tools(refs("p"), BOB)
        assert [one.code for one in failed.missing] == ["upstream.unavailable"]
        assert hub.tool_count("p", "ann") == 1
        assert hub.tool_count("p", "bob") is None
        group.cancel_scope.cancel()


async def test_a_change_is_announced_to_the_account_that_sees_it() -> None:
    server = Personal("p", {}, ["x"])
    settings = config(publish=Publish(mcp_servers=refs("p")))
    async with task_group() as group:
        hub = Hub(settings, {"p": server}, personal={"p"})
        await group.start(hub.run)
        publisher = Publisher(settings, hub, version="1")
        await names(publisher, ANN)
        await names(publisher, BOB)
        told: list[Audience] = []
        heard = anyio.Event()

        def hear(method: str, params: Payload, audience: Audience) -> None:
            told.append(audience)
            heard.set()

        publisher.watch(hear)
        server.own["ann"] = "new"
        server.says_changed("tools", "bob")  # who sees nothing new
        server.says_changed("tools", "ann")
        await heard.wait()
        assert told == [Audience("ann")]
        assert await names(publisher, ANN) == ["new", "x"]
        assert await names(publisher, BOB) == ["x"]
        group.cancel_scope.cancel()


async def test_accounts_that_see_the_same_share_the_list() -> None:
    async with task_group() as group:
        hub = Hub(config(), {"p": Personal("p", {"cy": "c"}, ["x"])}, personal={"p"})
        await group.start(hub.run)
        assert await hub.tools(refs("p"), ANN) is await hub.tools(refs("p"), BOB)
        assert await hub.tools(refs("p"), Caller(account="cy")) != await hub.tools(refs("p"), ANN)
        group.cancel_scope.cancel()


FIRST = Payload.of({"name": "first", "arguments": {}})


async def test_the_lists_of_more_accounts_than_are_kept_are_listed_again() -> None:
    server = Personal("p", {"0": "first"}, ["x"])
    settings = config(publish=Publish(mcp_servers=refs("p")))
    async with task_group() as group:
        hub = Hub(settings, {"p": server}, personal={"p"})
        await group.start(hub.run)
        publisher = Publisher(settings, hub, version="1")
        for n in range(MAX_ACCOUNTS + 1):
            assert "x" in await names(publisher, Caller(account=str(n)))
        assert await publisher.request("tools/call", FIRST, Call(caller=Caller(account="0")))
        assert server.listed_for.count("0") == 2
        group.cancel_scope.cancel()


async def test_the_lists_of_those_are_kept_who_use_them() -> None:
    server = Personal("p", {"0": "first"}, ["x"])
    settings = config(publish=Publish(mcp_servers=refs("p")))
    async with task_group() as group:
        hub = Hub(settings, {"p": server}, personal={"p"})
        await group.start(hub.run)
        publisher = Publisher(settings, hub, version="1")
        for n in range(MAX_ACCOUNTS + 1):
            assert "x" in await names(publisher, Caller(account=str(n)))
            assert await publisher.request("tools/call", FIRST, Call(caller=Caller(account="0")))
        assert server.listed_for.count("0") == 1
        assert "x" in await names(publisher, Caller(account="1"))
        assert server.listed_for.count("1") == 2
        group.cancel_scope.cancel()
