"""Requests to addresses that somebody else chose: nothing forbidden is ever connected to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from nanobot.addresses import PUBLIC_ONLY, AddressRules
from nanobot.http import HttpError, open_http

pytestmark = pytest.mark.anyio


class Peer:
    """Counts who connects, and answers everybody the same."""

    def __init__(self) -> None:
        self.keeps = True
        self.connections = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                how = b"keep-alive" if self.keeps else b"close"
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: " + how + b"\r\n\r\nhi")
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def listening() -> AsyncGenerator[Peer]:
    peer = Peer()
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0x7f.1", "2130706433", "0177.0.0.1",
        "127.1", "10.0.0.1", "169.254.169.254", "[fd00:ec2::254]", "0.0.0.0", "1.2.3.4.5.6",
    ],
)  # fmt: skip
async def test_no_spelling_of_a_private_address_is_connected_to(host: str) -> None:
    async with listening() as peer, open_http() as http:
        guarded = http.guarded(PUBLIC_ONLY)
        with pytest.raises(HttpError) as refused:
            await guarded.request("GET", f"http://{host}:{peer.port}/", timeout_s=5)
        assert refused.value.kind in ("forbidden", "bad_url", "connect")
        assert not refused.value.sent
        with pytest.raises(HttpError):
            async with guarded.stream("GET", f"http://{host}:{peer.port}/"):
                pass
        assert peer.connections == 0


@pytest.mark.parametrize("allowed", ["localhost", "127.0.0.0/8"])
async def test_what_the_rules_allow_is_reached(allowed: str) -> None:
    async with listening() as peer, open_http() as http:
        guarded = http.guarded(AddressRules((allowed,)))
        assert (await guarded.request("GET", f"http://localhost:{peer.port}/")).body == b"hi"


async def test_a_connection_that_others_hold_open_is_not_used() -> None:
    async with listening() as peer, open_http() as http:
        url = f"http://127.0.0.1:{peer.port}/"
        await http.request("GET", url)
        await http.guarded(AddressRules(("127.0.0.1",))).request("GET", url)
        with pytest.raises(HttpError, match="private or reserved"):
            await http.guarded(PUBLIC_ONLY).request("GET", url)
        assert peer.connections == 2


async def test_a_name_that_changes_its_mind_is_judged_at_each_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Names are those of a server that we cannot run here: the second answer differs from the first."""
    system, answers = anyio.getaddrinfo, ["127.0.0.1", "10.0.0.1"]

    async def look_up(host: Any, port: Any, **options: Any) -> Any:
        return await system(answers.pop(0) if host == "rebinding.example" else host, port, **options)

    monkeypatch.setattr(anyio, "getaddrinfo", look_up)
    async with listening() as peer, open_http() as http:
        guarded = http.guarded(AddressRules(("127.0.0.1",)))
        url = f"http://rebinding.example:{peer.port}/"
        peer.keeps = False
        assert (await guarded.request("GET", url)).body == b"hi"
        assert answers == ["10.0.0.1"]  # one lookup: what was judged is what was used
        with pytest.raises(HttpError, match="private or reserved"):
            await guarded.request("GET", url)
        assert peer.connections == 1


async def test_a_proxy_is_not_asked_for_what_may_not_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening() as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        async with open_http() as http:
            guarded = http.guarded(PUBLIC_ONLY)
            assert (await guarded.request("GET", "http://93.184.216.34/")).body == b"hi"
            with pytest.raises(HttpError, match="private or reserved"):
                await guarded.request("GET", "http://10.0.0.1/")
        assert proxy.connections == 1
