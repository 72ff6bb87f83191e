"""The connections of one server: when they are opened, given on, and closed."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.upstream.world import PEERS, SANDBOX, pooled, probe, until
from tests.wire.http_peer import Answer, Asked, Peer, answer, serving

from nanobot.config.model import McpServer, SandboxSettings
from nanobot.errors import Busy
from nanobot.upstream.pool import Pool
from nanobot.wire.call import Call, Caller
from nanobot.wire.extensions import SHOWS_APPS
from nanobot.wire.rpc import Payload

pytestmark = pytest.mark.anyio


def of(account: str = "", session: str | None = None, *, thread: str | None = None) -> Call:
    return Call(caller=Caller(account=account, session=session), thread=thread)


async def run(pool: Pool, code: str, call: Call) -> object:
    params = Payload.of({"name": "attempt", "arguments": {"code": code}})
    return (await pool.request("tools/call", params, call)).object()["result"]


async def pid(pool: Pool, call: Call) -> int:
    found = await run(pool, "import os; result = os.getpid()", call)
    assert isinstance(found, int)
    return found


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_many_first_requests_of_a_session_open_one_connection() -> None:
    seen: set[int] = set()
    async with pooled(probe()) as pools, anyio.create_task_group() as group:

        async def ask() -> None:
            seen.add(await pid(pools["probe"], of("a", "s")))

        for _ in range(20):
            group.start_soon(ask)
    assert len(seen) == 1


async def test_a_conversation_of_ours_is_a_session_too() -> None:
    async with pooled(probe()) as pools:
        pool = pools["probe"]
        one, two = await pid(pool, of(thread="t1")), await pid(pool, of(thread="t2"))
        assert one != two
        assert await pid(pool, of(thread="t1")) == one


async def test_what_lists_were_read_through_is_given_to_the_first_session_of_its_account() -> None:
    async with pooled(probe()) as pools:
        pool = pools["probe"]
        reader = await pool.ready(Caller(account="a"))
        assert str(await pid(pool, of("b", "s"))) != reader.server_info["version"]
        assert str(await pid(pool, of("a", "s"))) == reader.server_info["version"]
        assert str(await pid(pool, of("a", "t"))) != reader.server_info["version"]
        assert pool.state().connections == 3


async def test_lists_are_read_through_a_connection_that_is_there() -> None:
    async with pooled(probe()) as pools:
        pool = pools["probe"]
        await pid(pool, of("a", "s"))
        assert [tool.key for tool in await pool.listing("tools", Caller(account="a"))] == ["attempt"]
        assert pool.state().connections == 1


async def test_an_unused_connection_is_closed_and_one_whose_session_is_there_is_not() -> None:
    now = 0.0
    async with pooled(probe(), clock=lambda: now) as pools:
        pool = pools["probe"]
        pools.began("a", "here")
        here, away = await pid(pool, of("a", "here")), await pid(pool, of("a", "away"))
        now = 899
        pool.sweep()
        assert pool.state().connections == 2
        now = 900
        pool.sweep()
        await until(lambda: not lives(away))
        assert await pid(pool, of("a", "here")) == here
        pools.ended("a", "here")
        await until(lambda: not lives(here))
        assert (pool.state().state, pool.state().connections) == ("idle", 0)
        assert await pid(pool, of("a", "here")) != here


async def test_a_connection_that_everybody_shares_stays() -> None:
    now = 0.0
    async with pooled(probe(sharing="global"), probe("other"), clock=lambda: now) as pools:
        shared = await pid(pools["probe"], of("a", "s"))
        other = await pid(pools["other"], of("a", "s"))
        now = 900
        for pool in pools.values():
            pool.sweep()
        await until(lambda: not lives(other))
        assert await pid(pools["probe"], of("b", "t")) == shared


async def test_no_process_outlives_its_pool() -> None:
    async with pooled(probe(), probe("other")) as pools:
        pids = [await pid(pools[name], of("a", f"s{n}")) for name in ("probe", "other") for n in range(3)]
        assert all(map(lives, pids))
    assert not any(map(lives, pids))


async def test_a_session_that_ends_lets_its_calls_end_first(tmp_path: Path) -> None:
    entered, go_on = tmp_path / "entered", tmp_path / "go-on"
    os.mkfifo(go_on)
    code = f"open({str(entered)!r}, 'w').close(); result = open({str(go_on)!r}).read()"
    async with pooled(probe()) as pools, anyio.create_task_group() as group:
        said: list[object] = []

        async def ask() -> None:
            said.append(await run(pools["probe"], code, of("a", "s")))

        group.start_soon(ask)
        await until(entered.exists)
        pools.ended("a", "s")
        await anyio.to_thread.run_sync(go_on.write_text, "done")
        await until(lambda: pools["probe"].state().connections == 0)
        assert said == ["done"]


async def test_a_session_that_ends_during_its_first_request_takes_its_connection_along() -> None:
    asked_for_level, go_on = anyio.Event(), anyio.Event()

    async def logging(asked: Asked) -> Answer:
        if asked.method == "initialize":
            about: dict[str, Any] = {"capabilities": {"logging": {}}, "serverInfo": {}}
            return answer(asked, {"protocolVersion": "2025-11-25", **about})
        if asked.method == "logging/setLevel":
            asked_for_level.set()
            await go_on.wait()
        return None

    peer = Peer(logging)
    async with serving(peer) as url, pooled(McpServer(name="far", url=url)) as pools:
        pool = pools["far"]
        await pool.ready(Caller(account="a"))  # a connection that the session is given
        await pool.request("logging/setLevel", Payload.of({"level": "debug"}), of("a", "s"))
        async with anyio.create_task_group() as group:
            group.start_soon(pool.request, "tools/call", Payload.of({"name": "work"}), of("a", "s"))
            await asked_for_level.wait()  # before anything else is sent over it
            pool.end("a", "s")
            go_on.set()
        assert peer.times("tools/call") == 1
        await until(lambda: pool.state().connections == 0)


async def test_a_list_is_read_again_after_nobody_could_hear_of_changes() -> None:
    async with pooled(probe()) as pools:
        pool = pools["probe"]
        news: list[tuple[str, str]] = []
        await pid(pool, of("a", "s"))
        pools.ended("a", "s")
        await until(lambda: pool.state().connections == 0)
        pool.watch(lambda kind, account: news.append((kind, account)))
        await pid(pool, of("a", "t"))
        assert ("tools", "a") in news
        assert {account for _, account in news} == {"a"}


async def test_what_an_ended_connection_still_says_does_not_make_it_the_one_to_read_lists_through() -> None:
    two_changes = (
        'import sys; said = \'{"jsonrpc": "2.0", "method": "notifications/%s/list_changed"}\\n\'; '
        "sys.stdout.write(said % 'tools' + said % 'prompts'); sys.stdout.flush()"
    )
    async with pooled(probe()) as pools, anyio.create_task_group() as group:
        pool = pools["probe"]
        await pid(pool, of("a", "stays"))
        await pid(pool, of("a", "ends"))
        read: list[int] = []

        async def list_tools() -> None:
            read.append(len(await pool.listing("tools", Caller(account="a"))))

        def changed(kind: str, account: str) -> None:
            if kind == "tools":
                pool.end("a", "ends")
            elif kind == "prompts":
                group.start_soon(list_tools)

        pool.watch(changed)
        call = of("a", "ends")
        code = "import threading; threading.Timer(0.1, lambda: exec(" + repr(two_changes) + ")).start()"
        await run(pool, code, call)
        await until(lambda: read == [1])


async def test_beyond_the_most_the_longest_idle_makes_room_and_what_is_in_use_does_not(
    tmp_path: Path,
) -> None:
    async with pooled(probe(max_connections=2)) as pools:
        pool = pools["probe"]
        pools.began("a", "stays")
        stays, idle = await pid(pool, of("a", "stays")), await pid(pool, of("a", "idle"))
        pools.began("b", "new")
        new = await pid(pool, of("b", "new"))
        assert not lives(idle)
        assert lives(stays)
        with pytest.raises(Busy, match="maxConnections"):
            await pid(pool, of("c", "one more"))
        assert await pid(pool, of("b", "new")) == new


@pytest.mark.skipif(SANDBOX is None, reason="needs bubblewrap")
async def test_what_a_server_keeps_on_disk_is_seen_by_its_processes_for_the_same_account_alone(
    tmp_path: Path,
) -> None:
    kept = "import os, pathlib; f = pathlib.Path(os.environ['HOME']) / 'token'; "
    server = probe(sharing="account")
    sandbox = SandboxSettings(readable=(str(PEERS),))
    async with pooled(replace(server, sandbox=sandbox), home=tmp_path / "home") as pools:
        pool = pools["probe"]
        await run(pool, kept + "f.write_text('of a')", of("a"))
        assert await run(pool, kept + "result = f.exists()", of("b")) is False
        assert await run(pool, kept + "result = f.read_text()", of("a")) == "of a"
        assert await run(pool, kept + "result = f.exists()", of()) is False


@pytest.mark.parametrize("protocol", ["legacy", "modern"])
async def test_a_server_is_told_of_apps_if_the_client_shows_them(protocol: Any) -> None:
    peer = str(PEERS / "app_server.py")
    server = McpServer(name="clock", command=sys.executable, args=(peer,), sandbox=None, protocol=protocol)
    async with pooled(server) as pools:
        pool = pools["clock"]
        await pool.listing("tools")  # for nobody in particular
        for session, capabilities, told in (
            ("one", {"extensions": SHOWS_APPS}, "yes"),
            ("two", {}, "no"),
        ):
            call = Call(caller=Caller(session=session, era=protocol, capabilities=capabilities))
            answer = await pool.request("tools/call", Payload.of({"name": "declared"}), call)
            assert answer.object()["content"][0]["text"] == told
        assert pool.state(None).connections == 2
