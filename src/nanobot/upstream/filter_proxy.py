"""The only way out of a sandbox with `network: proxy`: an HTTP proxy that looks where a connection leads.

It listens on a socket in a directory of its own, which is bound into the sandbox. A name is resolved once,
here, and the connection goes to the very address that was judged, so a name that changes its mind between the
look and the call gains nothing.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteStream, SocketStream

from nanobot.addresses import AddressForbidden, AddressRules, find_addresses
from nanobot.aio import task_group

log = logging.getLogger(__name__)

INSIDE_URL: Final = "http://127.0.0.1:3128"
"""Where `inside.py` listens in the sandbox's own network."""

PROXY_VARIABLES: Final = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})

MAX_HEAD: Final = 32 * 1024
MAX_CONNECTIONS: Final = 64
DRAIN_S: Final = 1.0
"""How long a client that was refused may go on sending."""
HEAD_S: Final = 15.0
CONNECT_S: Final = 10.0
IDLE_S: Final = 600.0
CHUNK: Final = 64 * 1024

_DROPPED = (b"proxy-", b"connection:", b"keep-alive:", b"host:", b"te:", b"upgrade:")


_ENDINGS = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, TimeoutError, OSError)
"""The ways in which one of the two sides goes away."""


class _Refused(Exception):
    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status = status


def proxy_environment() -> dict[str, str]:
    """What tells a program inside of the proxy. Both spellings: curl reads only the small one for http."""
    names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    return {**dict.fromkeys(names, INSIDE_URL), "NODE_USE_ENV_PROXY": "1"}


@asynccontextmanager
async def open_filter_proxy(allowed: Sequence[str], *, server: str) -> AsyncGenerator[Path]:
    """The proxy of one server, and its socket, until the block ends."""
    rules = AddressRules(tuple(allowed))
    with tempfile.TemporaryDirectory(prefix="nanobot-") as folder:  # short: a socket's path is limited
        path = Path(folder) / "proxy"
        async with await anyio.create_unix_listener(path) as listener, task_group() as group:
            free = anyio.Semaphore(MAX_CONNECTIONS)

            async def serve(client: SocketStream) -> None:
                async with free, client:
                    await _serve(client, rules, server)

            group.start_soon(listener.serve, serve)
            yield path
            group.cancel_scope.cancel()


async def _serve(client: ByteStream, rules: AddressRules, server: str) -> None:
    with suppress(*_ENDINGS):
        try:
            with anyio.fail_after(HEAD_S):
                head, rest = await _head(client)
            method, host, port, target = _request(head)
            upstream = await _connect(host, port, rules)
        except _Refused as e:
            log.info("proxy refused", extra={"server": server, "reason": str(e)})
            body = f"{e}\n".encode()
            await client.send(
                f"HTTP/1.1 {e.status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                + body
            )
            await client.send_eof()
            with anyio.move_on_after(
                DRAIN_S
            ):  # closed with something unread, it would take the answer with it
                while True:
                    await client.receive(CHUNK)
            return
        async with upstream:
            if method == "CONNECT":
                await client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
                if rest:
                    await upstream.send(rest)
            else:
                await upstream.send(_forwarded(head, method, host, port, target) + rest)
            async with task_group() as both:
                both.start_soon(_pass_on, client, upstream)
                await _pass_on(upstream, client)
                if method != "CONNECT":
                    both.cancel_scope.cancel()  # the answer is complete; nothing more is sent


async def _head(client: ByteStream) -> tuple[bytes, bytes]:
    """The request up to its empty line, and what came after it."""
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        if len(data) > MAX_HEAD:
            raise _Refused("431 Request Header Fields Too Large", "The request's head is too long.")
        data += await client.receive(CHUNK)
    return data[: end + 2], data[end + 4 :]


def _request(head: bytes) -> tuple[str, str, int, str]:
    """Method, host, port and, for what is not CONNECT, the path with its query."""
    try:
        method, target, version = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError
        if method == "CONNECT":
            parts = urlsplit("//" + target)
            host, port, path = parts.hostname, parts.port, ""
        else:
            parts = urlsplit(target)
            if parts.scheme != "http":
                raise ValueError
            host, port = parts.hostname, parts.port or 80
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    except ValueError:
        host = port = None
        method = path = ""
    if not host or not port:
        raise _Refused("400 Bad Request", "This proxy takes CONNECT host:port and http:// addresses.")
    return method, host, port, path


def _forwarded(head: bytes, method: str, host: str, port: int, path: str) -> bytes:
    """The request as its server expects it, for one answer."""
    shown = f"[{host}]" if ":" in host else host
    ours = [f"{method} {path} HTTP/1.1".encode(), f"Host: {shown}:{port}".encode(), b"Connection: close"]
    theirs = [line for line in head.split(b"\r\n")[1:] if line and not line.lower().startswith(_DROPPED)]
    lines = ours + theirs
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def _connect(host: str, port: int, rules: AddressRules) -> SocketStream:
    try:
        addresses = await find_addresses(host, port, rules)
    except AddressForbidden as e:
        raise _Refused("403 Forbidden", f"{e}; `sandbox.allowHosts` may allow it.") from e
    except OSError:
        raise _Refused("502 Bad Gateway", f"{host} does not resolve.") from None
    for address in addresses:
        try:
            with anyio.fail_after(CONNECT_S):
                return await anyio.connect_tcp(str(address), port)
        except (OSError, TimeoutError):
            continue
    raise _Refused("502 Bad Gateway", f"{host} does not accept connections on port {port}.")


async def _pass_on(source: ByteStream, target: ByteStream) -> None:
    try:
        while True:
            with anyio.fail_after(IDLE_S):
                chunk = await source.receive(CHUNK)
            await target.send(chunk)
    except anyio.EndOfStream:
        with suppress(*_ENDINGS):
            await target.send_eof()
    except _ENDINGS:
        await target.aclose()
