"""Remote servers that come and go, and what a definition may say about them."""

from __future__ import annotations

import socket

import pytest
from starlette.responses import JSONResponse, Response
from tests.upstream.world import running, until, use
from tests.wire.http_peer import Answer, Asked, Peer, serving

from nanobot.config.model import McpServer
from nanobot.errors import UpstreamUnavailable
from nanobot.wire.call import Call, Caller
from nanobot.wire.rpc import Payload

pytestmark = pytest.mark.anyio


async def usual(asked: Asked) -> Answer:
    return None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


async def test_a_server_that_vanishes_is_found_again_when_it_is_back() -> None:
    port = free_port()
    server = McpServer(name="far", url=f"http://127.0.0.1:{port}/mcp")
    async with running(server, backoff_s=(0.01,)) as upstream:
        async with serving(Peer(usual), port):
            assert await use(upstream, "work") == {"of": "tools/call"}
        for _ in range(2):
            with pytest.raises(UpstreamUnavailable):
                await use(upstream, "work")
        await until(lambda: upstream.state.state == "backoff")
        async with serving(Peer(usual), port):
            await until(lambda: upstream.state.state == "ready")
            assert await use(upstream, "work") == {"of": "tools/call"}
            assert upstream.state.restarts == 1


@pytest.mark.parametrize(("status", "attempts"), [(500, 1), (403, 2), (401, 2)])
async def test_another_token_ends_a_pause_once_and_only_if_the_last_was_refused(
    status: int, attempts: int
) -> None:
    async def refusing(asked: Asked) -> Answer:
        return Response(status_code=status)

    peer = Peer(refusing)
    async with serving(peer) as url:
        headers = {"X-Token": "${http:bearer-token}"}
        far = McpServer(
            name="far", url=url, headers=headers, personal_headers=frozenset(headers), protocol="legacy"
        )
        async with running(far, backoff_s=(1000.0,)) as upstream:
            for number in range(6):
                call = Call(caller=Caller(values={"http:bearer-token": f"token-{number % 2}"}))
                with pytest.raises(UpstreamUnavailable, match=f"status {status}"):
                    await use(upstream, "work", call)
            assert peer.times("initialize") == attempts
            sent = [asked.headers["x-token"] for asked in peer.asked if asked.method == "initialize"]
            assert sent == ["token-0", "token-1"][:attempts]


async def test_a_cut_answer_costs_a_call_but_not_a_list() -> None:
    async def on_request(asked: Asked) -> Answer:
        if asked.method in ("tools/call", "resources/read") and peer.times(asked.method) == 1:
            return Response(": cut\n\n", media_type="text/event-stream")
        return None

    peer = Peer(on_request)
    async with serving(peer) as url, running(McpServer(name="far", url=url)) as upstream:
        read = await upstream.request("resources/read", Payload.of({"uri": "x:y"}), Call())
        assert read.value == {"of": "resources/read"}
        with pytest.raises(UpstreamUnavailable) as failure:
            await use(upstream, "work")
        assert failure.value.maybe_sent
    assert peer.times("tools/call") == 1


async def test_callers_of_a_server_that_cannot_be_reached_share_one_attempt_and_its_error() -> None:
    refused = Peer(usual)

    async def on_request(asked: Asked) -> Answer:
        return Response(status_code=503)

    refused.on_request = on_request
    async with serving(refused) as url, running(McpServer(name="far", url=url)) as upstream:
        for _ in range(20):
            with pytest.raises(UpstreamUnavailable, match="503"):
                await upstream.ready()
    assert len(refused.asked) == 2  # the probe and the handshake of one attempt


async def test_headers_are_expanded_and_an_unset_one_sends_nothing() -> None:
    peer = Peer(usual)
    headers = {"X-${NAME}": "Bearer ${KEY}"}
    async with serving(peer) as url:
        server = McpServer(name="far", url=url, headers=headers)
        async with running(server, env={"NAME": "Auth", "KEY": "k"}) as upstream:
            await upstream.ready()
        assert all(asked.headers["x-auth"] == "Bearer k" for asked in peer.asked)
        peer.asked.clear()
        async with running(server, env={"NAME": "Auth"}) as upstream:
            with pytest.raises(UpstreamUnavailable, match=r"headers.*'far'.*KEY"):
                await upstream.ready()
        async with running(server, env={"NAME": "Auth", "KEY": "two\r\nlines"}) as upstream:
            with pytest.raises(UpstreamUnavailable, match="one line") as failure:
                await upstream.ready()
        assert "two" not in str(failure.value)
    assert peer.asked == []


async def test_a_server_that_repeats_a_credential_does_not_get_it_into_an_error() -> None:
    async def on_request(asked: Asked) -> Answer:
        error = {"code": -32000, "message": f"bad token {asked.headers['x-token']}"}
        return JSONResponse({"jsonrpc": "2.0", "id": asked.message["id"], "error": error})

    async with serving(Peer(on_request)) as url:
        server = McpServer(name="far", url=url, headers={"X-Token": "${TOKEN}"})
        async with running(server, env={"TOKEN": "canary-1"}) as upstream:
            with pytest.raises(UpstreamUnavailable, match=r"bad token \*\*\*") as failure:
                await upstream.ready()
            assert "canary" not in f"{failure.value} {upstream.state}"
