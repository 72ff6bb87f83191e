"""A connection is asked for as much of the log as the most curious of those who share it wants."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.upstream.world import pooled, until
from tests.wire.http_peer import Answer, Asked, Peer, answer, serving

from nanobot.config.model import McpServer
from nanobot.upstream.log_levels import LogLevels
from nanobot.upstream.pool import Pool
from nanobot.wire.call import Call, Caller
from nanobot.wire.rpc import Payload

SHARED = ("", "")


def test_the_most_curious_client_decides_until_it_leaves() -> None:
    levels = LogLevels()
    assert levels.least(SHARED) is None
    levels.want(("ann", "1"), SHARED, "warning")
    levels.want(("bob", "2"), SHARED, "debug")
    assert levels.least(SHARED) == "debug"
    assert levels.forget(("bob", "2")) == SHARED
    assert levels.least(SHARED) == "warning"
    levels.want(("ann", "1"), SHARED, "error")
    assert levels.least(SHARED) == "error"
    levels.forget(("ann", "1"))
    assert levels.least(SHARED) is None
    assert levels.forget(("ann", "1")) is None


def test_connections_that_are_not_shared_know_nothing_of_each_other() -> None:
    levels = LogLevels()
    levels.want(("", "1"), ("", "1"), "debug")
    levels.want(("", "2"), ("", "2"), "error")
    assert (levels.least(("", "1")), levels.least(("", "2"))) == ("debug", "error")


class Logging:
    """A server that logs, and the levels that it was asked for. Its tool waits for `go_on`."""

    def __init__(self) -> None:
        self.levels: list[str] = []
        self.go_on = anyio.Event()
        self.peer = Peer(self._answer)

    async def _answer(self, asked: Asked) -> Answer:
        match asked.method:
            case "initialize":
                about: dict[str, Any] = {"capabilities": {"logging": {}}, "serverInfo": {}}
                about["protocolVersion"] = "2025-11-25"
                return answer(asked, about)
            case "logging/setLevel":
                self.levels.append(asked.message["params"]["level"])
            case "tools/call":
                await self.go_on.wait()
            case _:
                pass
        return None


async def work(pool: Pool, level: str) -> None:
    """A call of a modern client that wants to hear of it from `level` on."""
    call = Call(caller=Caller(account="a", era="modern", version="2026-07-28"), log_level=level)
    await pool.request("tools/call", Payload.of({"name": "work"}), call)


@pytest.mark.anyio
async def test_the_level_of_a_modern_client_counts_while_its_request_is_under_way() -> None:
    server = Logging()
    async with serving(server.peer) as url, pooled(McpServer(name="far", url=url, sharing="global")) as pools:
        pool = pools["far"]
        async with anyio.create_task_group() as group:
            group.start_soon(work, pool, "debug")
            await until(lambda: server.peer.times("tools/call") == 1)
            group.start_soon(work, pool, "error")
            await until(lambda: server.peer.times("tools/call") == 2)
            server.go_on.set()
        assert server.levels[:1] == ["debug"]
        await work(pool, "warning")
        assert server.levels[-1] == "warning"


@pytest.mark.anyio
async def test_after_it_the_level_is_again_that_of_those_who_are_still_there() -> None:
    server = Logging()
    server.go_on.set()
    async with serving(server.peer) as url, pooled(McpServer(name="far", url=url, sharing="global")) as pools:
        pool = pools["far"]
        staying = Call(caller=Caller(account="a", session="s"))
        await pool.request("tools/list", Payload.of({}), staying)
        await pool.request("logging/setLevel", Payload.of({"level": "error"}), staying)
        await work(pool, "debug")
        await until(lambda: server.levels == ["error", "debug", "error"])
