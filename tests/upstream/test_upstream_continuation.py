"""Sessions at remote servers: one for each of ours, and continued where ours is."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from starlette.responses import JSONResponse, Response
from tests.upstream.world import pooled, until
from tests.wire.http_peer import Answer, Asked, Peer, answer, events, serving

from nanobot.config.model import McpServer
from nanobot.errors import UpstreamUnavailable
from nanobot.upstream.pool import Pool
from nanobot.wire.call import Call, Caller
from nanobot.wire.client import Connected
from nanobot.wire.continuation import Continuation, place_of
from nanobot.wire.rpc import Payload

pytestmark = pytest.mark.anyio


async def usual(asked: Asked) -> Answer:
    return None


async def use(pool: Pool, session: str) -> Any:
    call = Call(caller=Caller(account="a", session=session))
    return (await pool.request("tools/call", Payload.of({"name": "work"}), call)).value


async def test_a_session_goes_on_with_its_session_at_the_server_over_a_new_connection() -> None:
    peer = Peer(usual)
    async with serving(peer) as url:
        far = McpServer(name="far", url=url)
        async with pooled(far) as pools:
            await use(pools["far"], "s")
            kept = json.loads(json.dumps(pools.continuations("a", "s")))
            pools.ended("a", "s", is_over=False)
            await until(lambda: pools["far"].state().connections == 0)
        assert kept["far"]["id"] == "first"
        assert not [asked for asked in peer.asked if asked.verb == "DELETE"]
        peer.asked.clear()
        async with pooled(far) as pools:
            pools.continue_with("a", "s", kept)
            await use(pools["far"], "s")
            assert peer.times("initialize") == peer.times("server/discover") == 0
            (called,) = [asked for asked in peer.asked if asked.method == "tools/call"]
            assert called.headers["mcp-session-id"] == "first"
            assert called.headers["mcp-protocol-version"] == "2025-11-25"
            pools.ended("a", "s")
            await until(lambda: any(asked.verb == "DELETE" for asked in peer.asked))


@pytest.mark.parametrize("status", [400, 404])
async def test_a_session_that_the_server_has_forgotten_begins_anew_and_the_call_is_made(status: int) -> None:
    async def forgetful(asked: Asked) -> Answer:
        if asked.headers.get("mcp-session-id") == "long ago":
            unknown = {"code": -32000, "message": "Bad Request: no valid session ID provided"}
            return JSONResponse({"jsonrpc": "2.0", "id": None, "error": unknown}, status_code=status)
        return None

    peer = Peer(forgetful)
    async with serving(peer) as url, pooled(McpServer(name="far", url=url)) as pools:
        await use(pools["far"], "other")
        kept = json.loads(json.dumps(pools.continuations("a", "other")))
        kept["far"]["id"] = "long ago"
        pools.continue_with("a", "s", kept)
        assert await use(pools["far"], "s") == {"of": "tools/call"}
        assert await use(pools["far"], "s") == {"of": "tools/call"}
        assert peer.times("initialize") == 2


async def test_a_session_that_the_server_knows_is_not_ended_by_a_request_that_it_refuses() -> None:
    async def strict(asked: Asked) -> Answer:
        refused = asked.method == "tools/call" and peer.times("tools/call") > 1
        return Response(status_code=400) if refused else None

    peer = Peer(strict)
    async with serving(peer) as url, pooled(McpServer(name="far", url=url)) as pools:
        await pools["far"].ready(Caller(account="b"))
        kept = {"far": {**known(url), "id": "still known"}}
        pools.continue_with("a", "s", kept)
        await use(pools["far"], "s")
        with pytest.raises(UpstreamUnavailable, match="status 400"):
            await use(pools["far"], "s")
        assert (peer.times("initialize"), peer.times("tools/call")) == (1, 2)


def known(url: str) -> dict[str, Any]:
    """A session at `url` as it is kept."""
    about = Connected(
        era="legacy", version="2025-11-25", server_info={"name": "peer"}, capabilities={}, instructions=""
    )
    return Continuation(place_of(url), "", about).to_json()


@pytest.mark.parametrize("change", [{"place": "elsewhere"}, {"id": 7}, {"initializeResult": {}}])
async def test_what_belongs_elsewhere_or_makes_no_sense_is_not_used(change: dict[str, Any]) -> None:
    peer = Peer(usual)
    async with serving(peer) as url, pooled(McpServer(name="far", url=url)) as pools:
        await use(pools["far"], "other")
        kept = json.loads(json.dumps(pools.continuations("a", "other")))
        kept["far"] |= {"id": "of somebody else"} | change
        pools.continue_with("a", "s", kept)
        await use(pools["far"], "s")
        assert {asked.headers.get("mcp-session-id") for asked in peer.asked} <= {None, "first"}


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_session_that_is_back_before_its_last_call_has_ended_keeps_its_connection(
    is_over: bool,
) -> None:
    go_on = anyio.Event()

    async def slow(asked: Asked) -> Answer:
        if asked.method == "prompts/get":
            await go_on.wait()
        return None

    peer = Peer(slow)
    async with serving(peer) as url, pooled(McpServer(name="far", url=url)) as pools:
        pools.began("a", "s")
        async with anyio.create_task_group() as group:
            call = Call(caller=Caller(account="a", session="s"))
            group.start_soon(pools["far"].request, "prompts/get", Payload.of({"name": "slow"}), call)
            await until(lambda: peer.times("prompts/get") == 1)
            kept = pools.continuations("a", "s")
            pools.ended("a", "s", is_over=is_over)
            pools.continue_with("a", "s", kept)
            pools.began("a", "s")
            go_on.set()
        await use(pools["far"], "s")
        assert pools["far"].state().connections == 1
        assert peer.times("initialize") == 1
        pools.ended("a", "s")
        await until(lambda: any(asked.verb == "DELETE" for asked in peer.asked))


async def test_what_a_server_speaks_is_found_out_once() -> None:
    peer = Peer(usual)
    async with serving(peer) as url, pooled(McpServer(name="far", url=url)) as pools:
        for session in ("one", "two", "three"):
            await use(pools["far"], session)
        assert (peer.times("server/discover"), peer.times("initialize")) == (1, 3)


async def test_streams_of_many_sessions_leave_room_for_their_requests() -> None:
    for_ever = anyio.Event()
    streams = 0

    async def with_streams(asked: Asked) -> Answer:
        nonlocal streams
        if asked.verb == "GET":
            streams += 1
            return events(": here\n\n", for_ever.wait())
        if asked.verb == "POST" and asked.method == "tools/call":
            return answer(asked, {"session": asked.headers["mcp-session-id"]})
        return None

    peer = Peer(with_streams)
    async with serving(peer) as url, pooled(McpServer(name="far", url=url)) as pools:
        for n in range(105):
            await use(pools["far"], f"s{n}")
        await until(lambda: streams == 105)
        with anyio.fail_after(20):
            await use(pools["far"], "s0")
        for_ever.set()
