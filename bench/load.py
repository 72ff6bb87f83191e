"""A load generator that is cheaper than what it measures: raw HTTP/1.1 over asyncio protocols.

`Plan` says what to send; `run` sends it over a number of connections, one request after the other on each,
and returns how long every request took.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Load:
    """What came out: seconds per request, wall seconds for all, and answers that were not a 2xx."""

    latencies: list[float]
    wall_s: float
    failures: int

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.wall_s

    def percentile(self, q: float) -> float:
        return sorted(self.latencies)[min(len(self.latencies) - 1, int(len(self.latencies) * q))]


def http_request(url: str, body: bytes, headers: dict[str, str]) -> bytes:
    """A POST as it goes over the wire."""
    parts = urlsplit(url)
    lines = [f"POST {parts.path or '/'} HTTP/1.1", f"Host: {parts.netloc}", f"Content-Length: {len(body)}"]
    lines += [f"{k}: {v}" for k, v in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class _Connection(asyncio.Protocol):
    """Sends the next request as soon as the answer to the last one is complete."""

    def __init__(self, next_request: Callable[[], bytes | None], latencies: list[float]) -> None:
        self._next = next_request
        self._latencies = latencies
        self._buffer = b""
        self.failures = 0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._buffer[:end].lower()
        at = head.find(b"content-length:")
        if at >= 0:
            length = int(head[at + 15 :].split(b"\r\n", 1)[0])
            if len(self._buffer) < end + 4 + length:
                return
        elif not self._buffer.endswith(b"0\r\n\r\n"):
            return
        self._latencies.append(time.perf_counter() - self._sent)
        if head[9:10] != b"2":
            self.failures += 1
        self._buffer = b""
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server closed the connection"))

    def _send(self) -> None:
        request = self._next()
        if request is None:
            if not self.done.done():
                self.done.set_result(None)
            self._transport.close()
            return
        self._sent = time.perf_counter()
        self._transport.write(request)


async def run(url: str, requests: Callable[[int], Callable[[], bytes | None]], connections: int) -> Load:
    """`requests(i)` gives connection `i` its source of requests; None ends it."""
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    started = time.perf_counter()
    lines = [
        await loop.create_connection(
            lambda i=i: _Connection(requests(i), latencies), parts.hostname, parts.port
        )
        for i in range(connections)
    ]
    for _, protocol in lines:
        await protocol.done
    return Load(latencies, time.perf_counter() - started, sum(p.failures for _, p in lines))


ID = b"1000000"
"""Stands for the JSON-RPC id in a request that is repeated; every sending gets an id of its own."""


def repeat(request: bytes, times: int) -> Callable[[int], Callable[[], bytes | None]]:
    """The same request `times` times on each connection, each with a fresh id in the place of `ID`."""
    head, id, tail = request.partition(ID)
    ids = itertools.count(int(ID))

    def source(_: int) -> Callable[[], bytes | None]:
        left = times

        def following() -> bytes | None:
            nonlocal left
            left -= 1
            if left < 0:
                return None
            return head + str(next(ids)).encode() + tail if id else request

        return following

    return source


@dataclass(frozen=True)
class Target:
    """A server under load: its URL, the request it gets, and how often on each connection in one round."""

    url: str
    request: bytes
    times: int


def rates(targets: dict[str, Target], *, connections: int = 16, rounds: int = 7) -> dict[str, list[float]]:
    """Requests per second of every target in every round.

    The targets take turns within a round, so that a machine whose speed drifts is as fast for one as for
    the other; compare the figures of one round with each other.
    """

    async def measure() -> dict[str, list[float]]:
        found: dict[str, list[float]] = {name: [] for name in targets}
        for target in targets.values():
            await run(target.url, repeat(target.request, max(10, target.times // 5)), connections)
        for _ in range(rounds):
            for name, target in targets.items():
                load = await run(target.url, repeat(target.request, target.times), connections)
                if load.failures:
                    raise RuntimeError(f"{load.failures} answers of {name} were no success")
                found[name].append(load.per_second)
        return found

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(measure())
