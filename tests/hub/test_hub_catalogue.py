"""How lists of many servers are gathered: at once, once, and without one server hurting another."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest
from tests.hub.world import Server, config, refs, running, tool

from nanobot.config.model import McpServer
from nanobot.errors import UpstreamUnavailable
from nanobot.hub.catalogue import RETRY_SPACING_S
from nanobot.wire.call import NOBODY, Caller
from nanobot.wire.rpc import METHOD_NOT_FOUND, RpcError
from nanobot.wire.source import Entry, Kind

pytestmark = pytest.mark.anyio


async def test_many_readers_cause_one_listing() -> None:
    server = Server("s", [tool("t")]).hangs()
    async with running(config(), server) as hub, anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(hub.tools, refs("s"))
        await anyio.wait_all_tasks_blocked()
        server.gate.set()
    assert server.listed == ["tools"]


async def test_servers_are_listed_at_the_same_time() -> None:
    servers = [Server(f"s{n:02}", [tool(f"s{n:02}-{i:02}") for i in range(50)]).hangs() for n in range(20)]
    listings: list[int] = []
    async with running(config(), *servers) as hub, anyio.create_task_group() as group:

        async def read() -> None:
            listings.append(len((await hub.tools(refs(*(server.name for server in servers)))).items))

        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        assert all(server.listed == ["tools"] for server in servers)
        for server in servers:
            server.gate.set()
    assert listings == [1000]


async def test_a_hanging_server_delays_its_readers_once_and_then_shows_up() -> None:
    slow, quick = Server("slow", [tool("s")]).hangs(), Server("quick", [tool("q")])
    async with running(config(), slow, quick) as hub:
        news: list[Kind] = []
        told = anyio.Event()

        def hear(kind: Kind, account: str | None) -> None:
            news.append(kind)
            if not slow.gate.is_set():
                return
            told.set()

        hub.watch(hear)
        listing = await hub.tools(refs("slow", "quick"), wait_s=0.01)
        assert [one.name for one in listing.items] == ["q"]
        assert [(one.server, one.code) for one in listing.missing] == [("slow", "pending")]
        assert await hub.tools(refs("slow", "quick"), wait_s=0.01) == listing  # its time is over: no waiting
        assert slow.listed == ["tools"]
        slow.gate.set()
        await told.wait()
        listing = await hub.tools(refs("slow", "quick"))
        assert [one.name for one in listing.items] == ["q", "s"]
        assert listing.missing == ()


async def test_a_reader_who_leaves_does_not_stop_the_listing() -> None:
    server = Server("s", [tool("t")]).hangs()
    async with running(config(), server) as hub:
        async with anyio.create_task_group() as group:
            group.start_soon(hub.tools, refs("s"))
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        server.gate.set()
        assert len((await hub.tools(refs("s"))).items) == 1
    assert server.listed == ["tools"]


async def test_a_server_that_comes_back_is_listed_again() -> None:
    server = Server("s", [tool("t")], is_down=True)
    async with running(config(), server) as hub:
        listing = await hub.tools(refs("s"))
        assert [one.code for one in listing.missing] == ["upstream.unavailable"]
        began = anyio.current_time()
        for _ in range(50):
            await hub.tools(refs("s"))
        spent_s = anyio.current_time() - began
        assert len(server.listed) <= 2 + spent_s / RETRY_SPACING_S  # readers do not hammer a dead server
        server.is_down = False
        server.says_changed("tools")
        listing = await hub.tools(refs("s"))
        assert [one.name for one in listing.items] == ["t"]


@pytest.mark.parametrize("for_caller", [False, True])
async def test_another_caller_is_a_reason_to_list_again_once_and_only_if_the_last_was_refused(
    for_caller: bool,
) -> None:
    class Down(Server):
        async def listing(self, kind: Kind, caller: Caller = NOBODY) -> Sequence[Entry]:
            asked.append(caller.values["token"])
            raise UpstreamUnavailable(self.name, "no", for_caller=for_caller)

    asked: list[str] = []
    async with running(config(), Down("s"), personal=("s",)) as hub:
        began = anyio.current_time()
        for number in range(12):
            await hub.tools(refs("s"), Caller(account="a", values={"token": "ab"[number % 2]}), wait_s=30)
        spent_s = anyio.current_time() - began
        assert len(asked) <= (3 if for_caller else 2) + spent_s / RETRY_SPACING_S
        assert asked[:2] == (["a", "b"] if for_caller else asked[:2])


async def test_a_change_during_a_listing_leads_to_another_one() -> None:
    server = Server("s", [tool("t")]).hangs()
    async with running(config(), server) as hub:
        told = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(hub.tools, refs("s"))
            await anyio.wait_all_tasks_blocked()
            server.says_changed("tools")
            hub.watch(lambda kind, account: told.set() if len(server.listed) == 2 else None)
            server.gate.set()
        server.tools.append(tool("u"))
        await told.wait()
        assert [one.name for one in (await hub.tools(refs("s"))).items] == ["t", "u"]
    assert server.listed == ["tools", "tools"]


async def test_a_server_without_a_kind_has_none_of_it() -> None:
    class ToolsOnly(Server):
        async def listing(self, kind: Kind, caller: Caller = NOBODY) -> Sequence[Entry]:
            if kind != "tools":
                raise RpcError(METHOD_NOT_FOUND, "prompts/list")
            return await super().listing(kind, caller)

    async with running(config(), ToolsOnly("s", [tool("t")])) as hub:
        assert (await hub.prompts(refs("s"))).missing == ()


async def test_a_source_with_a_bug_is_an_internal_error_and_the_rest_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Server):
        async def listing(self, kind: Kind, caller: Caller = NOBODY) -> Sequence[Entry]:
            raise ZeroDivisionError("secret detail")

    async with running(config(), Broken("b"), Server("s", [tool("t")])) as hub:
        listing = await hub.tools(refs("b", "s"))
    assert [one.name for one in listing.items] == ["t"]
    assert [(one.server, one.code) for one in listing.missing] == [("b", "internal")]
    assert "secret" not in listing.missing[0].message
    assert any(record.exc_info for record in caplog.records)


async def test_leaving_the_hub_leaves_no_listing_and_no_watcher_behind() -> None:
    server = Server("s").hangs()
    async with running(config(), server) as hub:
        await hub.tools(refs("s"), wait_s=0)
        assert len(server.watchers) == 1
    assert server.watchers == []


async def test_an_unchanged_list_is_the_same_object() -> None:
    async with running(config(), Server("s", [tool("t")])) as hub:
        first = await hub.tools(refs("s"))
        assert await hub.tools(refs("s")) is first


async def test_without_its_owner_nothing_is_listed() -> None:
    from nanobot.hub.hub import Hub

    with pytest.raises(RuntimeError, match=r"Hub\.run"):
        await Hub(config(), {"s": Server("s")}).tools(refs("s"))


async def test_the_pipeline_of_a_server_holds_for_agents_too() -> None:
    settings = {"s": McpServer(name="s", tool_prefix="p_")}
    server = Server("s", [tool("t")])
    async with running(config(mcp_servers=settings), server) as hub:
        listing = await hub.tools(refs("s/p_t:mine", "s/t"))
        assert [(one.name, one.own_name) for one in listing.items] == [("mine", "t")]
        assert [one.code for one in listing.missing] == ["not_found"]
