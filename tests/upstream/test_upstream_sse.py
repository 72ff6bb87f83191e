"""Servers that speak HTTP+SSE, the transport of 2024-11-05."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.responses import Response, StreamingResponse
from tests.peers.programs import free_port
from tests.upstream.world import running, text_of, until, use
from tests.wire.http_peer import Answer, Asked, Peer, event, events, reply, serving

from nanobot.config.model import McpServer
from nanobot.errors import UpstreamUnavailable
from nanobot.http import open_http
from nanobot.wire.call import Call, Caller
from nanobot.wire.client import ConnectionLost, Hello
from nanobot.wire.client_sse import open_http_sse
from nanobot.wire.rpc import Payload

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


@contextmanager
def oracle_over_sse(port: int = 0) -> Generator[str]:
    """The official SDK's server as a process that serves HTTP+SSE; the address of its stream."""
    env = {**os.environ, "PORT": str(port), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.peers.sdk_sse"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def far(url: str, **settings: Any) -> McpServer:
    return McpServer(name="far", url=url, **settings)


@pytest.mark.parametrize("transport", ["auto", "sse"])
async def test_the_official_server_is_found_and_used(transport: Any) -> None:
    with oracle_over_sse() as url:
        async with running(far(url, transport=transport)) as upstream:
            assert "echo" in [entry.key for entry in await upstream.listing("tools")]
            assert text_of(await use(upstream, "echo", text="hi")) == "hi"
            assert upstream.state.era == "legacy"


async def test_progress_and_questions_reach_the_caller() -> None:
    heard: list[Any] = []

    async def answer(method: str, params: Payload) -> Payload:
        return Payload.of({"action": "accept", "content": {"name": "Ada"}})

    caller = Caller(capabilities={"elicitation": {"form": {}}})
    call = Call(
        caller=caller,
        wants_progress=True,
        notify=lambda method, params: heard.append(params.object()["progress"]),
        ask=answer,
    )
    with oracle_over_sse() as url:
        async with running(far(url)) as upstream:
            assert text_of(await use(upstream, "steps", call, count=3)) == "done"
            assert heard == [1, 2, 3]
            assert text_of(await use(upstream, "greet", call)) == "Hello Ada"


async def test_the_end_of_the_stream_is_the_end_of_the_connection_and_another_is_made() -> None:
    port = free_port()
    with oracle_over_sse(port) as url:
        async with running(far(url), backoff_s=(0.01,)) as upstream:
            with pytest.raises(UpstreamUnavailable) as failure:
                await use(upstream, "die")
            assert failure.value.maybe_sent
            with oracle_over_sse(port):
                await until(lambda: upstream.state.state == "ready" and upstream.state.restarts == 1)
                assert text_of(await use(upstream, "echo", text="again")) == "again"


def stream_of(*parts: Any, status: int = 405, body: str = "") -> Peer:
    """A server whose GET answers `parts` as events, and whose POST to the same path answers `status`."""

    async def on_request(asked: Asked) -> Answer:
        if asked.verb == "GET":
            return events(*parts)
        return Response(body, status_code=status, media_type="application/json" if body else None)

    return Peer(on_request)


@pytest.mark.parametrize("status", [400, 404, 405, 406, 415, 501])
async def test_what_refuses_the_newer_handshake_is_asked_for_a_stream(status: int) -> None:
    error = '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Method not allowed."}}'
    for body in ("", error):
        peer = stream_of(
            "event: endpoint\ndata: http://elsewhere.example:81/take\n\n", status=status, body=body
        )
        async with serving(peer) as url, running(far(url)) as upstream:
            with pytest.raises(UpstreamUnavailable, match=r"another place \(http://elsewhere.example:81\)"):
                await upstream.ready()
            assert upstream.state.state == "backoff"
        assert [asked.verb for asked in peer.asked][-1] == "GET"


@pytest.mark.parametrize("endpoint", ["//127.0.0.1:1/x", "https://127.0.0.1/x", "ftp://h/x", "http://[/x"])
async def test_an_endpoint_of_another_origin_gets_nothing(endpoint: str) -> None:
    peer = stream_of(f"event: endpoint\ndata: {endpoint}\n\n")
    async with serving(peer) as url, running(far(url, transport="sse")) as upstream:
        with pytest.raises(UpstreamUnavailable, match=r"another place|is no address"):
            await upstream.ready()
    assert [asked.verb for asked in peer.asked] == ["GET"]


async def test_other_refusals_and_a_forbidden_fallback_ask_for_no_stream() -> None:
    for status, settings in ((500, {}), (403, {}), (405, {"transport": "streamableHttp"})):
        peer = stream_of("event: endpoint\ndata: /take\n\n", status=status)
        async with serving(peer) as url, running(far(url, **settings)) as upstream:
            with pytest.raises(UpstreamUnavailable, match=str(status)):
                await upstream.ready()
        assert all(asked.verb == "POST" for asked in peer.asked)


async def test_where_there_is_no_stream_either_the_first_refusal_is_told() -> None:
    refused = '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"we want a licence"}}'

    async def on_request(asked: Asked) -> Answer:
        if asked.verb == "GET":
            return Response(status_code=405)
        return Response(refused, status_code=400, media_type="application/json")

    async with serving(Peer(on_request)) as url, running(far(url)) as upstream:
        with pytest.raises(UpstreamUnavailable, match="we want a licence"):
            await upstream.ready()


async def test_a_server_that_never_answers_the_get_is_given_up() -> None:
    async def on_request(asked: Asked) -> Answer:
        await anyio.sleep_forever()

    async with serving(Peer(on_request)) as url, open_http() as http:
        with pytest.raises(ConnectionLost, match="named no endpoint for messages"):
            async with open_http_sse(http, url, Hello(version="1"), unheard, headers={}, endpoint_s=0.05):
                pass


def unheard(method: str, params: Payload) -> None:
    """Nobody listens."""


@pytest.mark.parametrize("answers", [True, False])
async def test_a_stream_without_a_sign_of_life_has_ended_and_a_ping_may_bring_one(answers: bool) -> None:
    send, said = anyio.create_memory_object_stream[dict[str, Any]](100)
    pings = 0

    async def body() -> AsyncGenerator[str]:
        yield "event: endpoint\ndata: /mcp\n\n"
        async for message in said:
            yield event(message)

    async def on_request(asked: Asked) -> Answer:
        nonlocal pings
        if asked.verb == "GET":
            return StreamingResponse(body(), media_type="text/event-stream")
        pings += asked.method == "ping"
        if asked.method == "initialize" or (answers and asked.method == "ping"):
            await send.send(reply(asked, {"protocolVersion": "2024-11-05", "capabilities": {}}))
        return Response(status_code=202)

    with send, said:
        async with serving(Peer(on_request)) as url, open_http() as http:
            life = {"ping_s": 0.05, "silence_s": 1.0}
            async with open_http_sse(
                http, url, Hello(version="1"), unheard, headers={}, **life
            ) as connection:
                if answers:
                    await until(lambda: pings >= 40)  # for longer than a silence may last
                    assert connection.is_alive
                else:
                    with anyio.fail_after(20):
                        assert "silent" in await connection.lost()


async def test_a_stream_that_ends_without_naming_an_endpoint_says_so() -> None:
    peer = stream_of(event({"not": "an endpoint"}))
    async with serving(peer) as url, running(far(url, transport="sse")) as upstream:
        with pytest.raises(UpstreamUnavailable, match="named no endpoint"):
            await upstream.ready()
