"""Passing requests below a path on to a web server on this machine, WebSocket included."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

from nanobot.aio import task_group
from nanobot.http import Http, HttpError
from nanobot.narrow import object_of
from nanobot.server.exchange import Exchange
from nanobot.server.http_protocol import UPGRADE, Upgrade
from nanobot.server.problems import BadRequest, Header

MAX_BODY: Final = 1024 * 1024
MAX_HEAD: Final = 16 * 1024
CONNECT_S: Final = 10.0
MOST_SOCKETS: Final = 64
"""WebSocket connections at once."""

_HOP: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer"),
        *(b"transfer-encoding", b"upgrade", b"content-length", b"host"),
    }
)
_OURS: Final = frozenset({b"cookie", b"authorization", b"set-cookie", b"origin", b"accept-encoding"})
"""What is between us and the client, or would not be true behind us."""
_SWITCHED: Final = b"101"
_GONE: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class BrowserProxy:
    """Hands requests for paths below `prefix` to `target`, an address without a path, and answers back."""

    def __init__(self, http: Http, target: str, prefix: str) -> None:
        self._http = http
        self._target = target.rstrip("/")
        self._prefix = prefix
        self._sockets = anyio.CapacityLimiter(MOST_SOCKETS)

    async def pass_on(self, http: Exchange) -> None:
        """Answer as the target does; 502 if it does not."""
        upgrade = object_of(http.scope.get("extensions")).get(UPGRADE)
        try:
            if isinstance(upgrade, Upgrade):
                await self._connect(http, upgrade)
            else:
                await self._ask(http)
        except (HttpError, OSError, TimeoutError, anyio.IncompleteRead, anyio.DelimiterNotFound) as e:
            if http.is_answered:
                raise
            raise BadRequest(
                502, "browser", f"The browser view at {self._target} does not answer: {e}"
            ) from e

    async def _ask(self, http: Exchange) -> None:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in _kept(http.scope["headers"])
        }
        headers["Accept-Encoding"] = "identity"
        body = await http.read(MAX_BODY)
        url = self._target + self._path(http)
        async with self._http.stream(http.method, url, headers=headers, body=body or None) as answer:
            kept = [(n.lower().encode("latin-1"), v.encode("latin-1")) for n, v in answer.headers.items()]
            told = [(name, self._moved(name, value)) for name, value in _kept(kept)]
            await http.send({"type": "http.response.start", "status": answer.status, "headers": told})
            async for chunk in answer.chunks():
                await http.send({"type": "http.response.body", "body": chunk, "more_body": True})
        await http.send({"type": "http.response.body"})

    def _path(self, http: Exchange) -> str:
        """The path and the query, as they were sent, without the prefix."""
        path: str = http.scope["raw_path"].decode("latin-1")
        query: str = http.scope["query_string"].decode("latin-1")
        return (path[len(self._prefix) :] or "/") + (f"?{query}" if query else "")

    def _moved(self, name: bytes, value: bytes) -> bytes:
        is_ours = name == b"location" and value.startswith(b"/") and not value.startswith(b"//")
        return self._prefix.encode() + value if is_ours else value

    async def _connect(self, http: Exchange, upgrade: Upgrade) -> None:
        if self._sockets.available_tokens < 1:
            raise BadRequest(503, "busy", f"{MOST_SOCKETS} connections to the browser view are open already.")
        place = urlsplit(self._target)
        is_secure = place.scheme == "https"
        async with self._sockets:
            with anyio.fail_after(CONNECT_S):
                there = await anyio.connect_tcp(
                    place.hostname or "",
                    place.port or (443 if is_secure else 80),
                    ssl_context=ssl.create_default_context() if is_secure else None,
                    tls=is_secure,
                    tls_standard_compatible=False,
                )
            async with there:
                with anyio.fail_after(CONNECT_S):
                    await there.send(self._request(http))
                    reading = BufferedByteReceiveStream(there)
                    head = await reading.receive_until(b"\r\n\r\n", MAX_HEAD)
                if head.split(b" ", 2)[1:2] != [_SWITCHED]:
                    raise BadRequest(
                        502, "browser", f"The browser view at {self._target} takes no WebSocket."
                    )
                upgrade.take(_without_cookies(head))
                http.is_answered = True
                try:
                    await _both_ways(upgrade, there, reading)
                finally:
                    upgrade.close()

    def _request(self, http: Exchange) -> bytes:
        place = urlsplit(self._target)
        headers = [*_kept(http.scope["headers"]), (b"host", place.netloc.encode())]
        headers += [
            (b"origin", self._target.encode()),
            (b"connection", b"Upgrade"),
            (b"upgrade", b"websocket"),
        ]
        lines = [f"GET {self._path(http)} HTTP/1.1".encode("latin-1"), *(n + b": " + v for n, v in headers)]
        return b"\r\n".join((*lines, b"", b""))


async def _both_ways(upgrade: Upgrade, there: ByteStream, reading: BufferedByteReceiveStream) -> None:
    """Pass on what comes from either side until one of them ends."""
    async with task_group() as group:

        async def outward() -> None:
            while data := await upgrade.receive():
                await there.send(data)

        async def inward() -> None:
            while True:
                await upgrade.send(await reading.receive(MAX_HEAD))

        async def until_end(one: object) -> None:
            try:
                await (outward() if one is outward else inward())
            except _GONE:
                pass
            finally:
                group.cancel_scope.cancel()

        group.start_soon(until_end, outward)
        group.start_soon(until_end, inward)


def _kept(headers: Sequence[Header]) -> list[Header]:
    return [(name, value) for name, value in headers if name not in _HOP and name not in _OURS]


def _without_cookies(head: bytes) -> bytes:
    lines = head.split(b"\r\n")
    return b"\r\n".join([*(x for x in lines if not x.lower().startswith(b"set-cookie:")), b"", b""])
