"""The HTTP client against a real socket: how each failure is called, and whether it may have acted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from nanobot.http import HttpError, open_http

pytestmark = pytest.mark.anyio

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve) -> AsyncGenerator[str]:
    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    finally:
        server.close()


async def test_an_answer_is_read_whole_and_any_status_returns() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 418 no\r\nContent-Length: 5\r\nX-A: 1\r\n\r\nhello")

    async with listening(serve) as url, open_http() as http:
        answer = await http.request("GET", url)
    assert (answer.status, answer.headers["x-a"], answer.body) == (418, "1", b"hello")


async def test_redirects_are_not_followed() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 302 go\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n")

    async with listening(serve) as url, open_http() as http:
        assert (await http.request("GET", url)).status == 302


async def test_a_refused_connection_was_not_sent() -> None:
    async with open_http() as http:
        with pytest.raises(HttpError, match=r"Cannot connect to 127\.0\.0\.1") as failure:
            await http.request("POST", "http://127.0.0.1:1/?token=canary", body=b"x")
    assert (failure.value.kind, failure.value.sent) == ("connect", False)
    assert "canary" not in str(failure.value)


async def test_a_cut_answer_may_have_been_acted_on() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 ok\r\nContent-Length: 50\r\n\r\nhalf")

    async with listening(serve) as url, open_http() as http:
        with pytest.raises(HttpError) as failure:
            await http.request("POST", url, body=b"x")
    assert (failure.value.kind, failure.value.sent) == ("closed", True)


async def test_a_silent_stream_times_out_and_says_who_was_silent() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 ok\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        await reader.read()  # say no more until the client gives up

    got: list[bytes] = []
    async with listening(serve) as url, open_http() as http:
        with pytest.raises(HttpError, match=r"127\.0\.0\.1 stayed silent") as failure:
            async with http.stream("GET", url, idle_s=0.2) as stream:
                got.extend([chunk async for chunk in stream.chunks()])
    assert failure.value.kind == "timeout"


async def test_leaving_a_stream_closes_the_connection() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 ok\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        assert await reader.read() == b""
        gone.set()

    async with listening(serve) as url, open_http() as http:
        async with http.stream("GET", url) as stream:
            assert stream.status == 200
        await asyncio.wait_for(gone.wait(), 5)


async def test_an_answer_over_the_limit_is_refused() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 ok\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000)

    async with listening(serve) as url, open_http() as http:
        with pytest.raises(HttpError) as failure:
            await http.request("GET", url, max_bytes=1000)
    assert failure.value.kind == "too_large"


@pytest.mark.parametrize("url", ["ftp://x/", "nonsense", "http://", "http://[::1"])
async def test_an_address_that_is_none_is_named_as_such(url: str) -> None:
    async with open_http() as http:
        with pytest.raises(HttpError) as failure:
            await http.request("GET", url)
    assert failure.value.kind == "bad_url"
