"""One subscription for all who follow a resource: made by the first, given up by the last, made again."""

from __future__ import annotations

import anyio
import pytest

from nanobot.aio import task_group
from nanobot.upstream.subscriptions import Subscriptions
from nanobot.wire.rpc import METHOD_NOT_FOUND, RpcError

pytestmark = pytest.mark.anyio


class Server:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refuses = False
        self.gate = anyio.Event()
        self.gate.set()

    async def begin(self, uri: str) -> None:
        await self.gate.wait()
        self.asked.append(f"+{uri}")
        if self.refuses:
            raise RpcError(METHOD_NOT_FOUND, "no")

    async def stop(self, uri: str) -> None:
        self.asked.append(f"-{uri}")


async def test_the_first_follower_subscribes_and_the_last_gives_up() -> None:
    server = Server()
    subscriptions = Subscriptions(server.begin, server.stop)
    await subscriptions.add("a:1")
    await subscriptions.add("a:1")
    await subscriptions.remove("a:1")
    assert server.asked == ["+a:1"]
    await subscriptions.remove("a:1")
    await subscriptions.remove("a:1")
    assert server.asked == ["+a:1", "-a:1"]
    assert len(subscriptions) == 0


async def test_followers_that_come_at_once_cost_one_request() -> None:
    server = Server()
    server.gate = anyio.Event()
    subscriptions = Subscriptions(server.begin, server.stop)
    async with task_group() as group:
        for _ in range(20):
            group.start_soon(subscriptions.add, "a:1")
        await anyio.wait_all_tasks_blocked()
        server.gate.set()
    assert server.asked == ["+a:1"]


async def test_a_refusal_leaves_nothing_behind() -> None:
    server = Server()
    server.refuses = True
    subscriptions = Subscriptions(server.begin, server.stop)
    with pytest.raises(RpcError):
        await subscriptions.add("a:1")
    assert len(subscriptions) == 0
    server.refuses = False
    await subscriptions.add("a:1")
    assert server.asked == ["+a:1", "+a:1"]
