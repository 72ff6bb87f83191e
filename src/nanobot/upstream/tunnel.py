"""A way to one TCP port of this machine for those who cannot reach it: TLS with a certificate on both sides.

In the TLS stream each piece has two bytes of length in front; a piece of length nothing is the end of that
direction. TLS itself cannot say that one side has finished while the other goes on, and a stream that ends
without that piece was cut off: it is not passed on as an end, but as a connection that broke.
"""

from __future__ import annotations

import logging
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio
from anyio.abc import AnyByteStream, SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSListener, TLSStream

from nanobot.aio import task_group
from nanobot.upstream.certificates import Certified

log = logging.getLogger(__name__)

READY: Final = "ready"
"""What an entrance that runs by itself prints once it accepts connections."""
LOOPBACK: Final = "127.0.0.1"
MOST_CONNECTIONS: Final = 256
"""Through one port at once; others wait."""
CONNECT_S: Final = 10.0
PIECE: Final = 32 * 1024

_LENGTH: Final = struct.Struct("!H")
_CUT_OFF: Final = struct.pack("ii", 1, 0)
_BROKEN: Final = (
    *(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.IncompleteRead),
    *(ssl.SSLError, OSError),
)


@asynccontextmanager
async def open_exit(host: str, port: int, certified: Certified) -> AsyncGenerator[int]:
    """Lead whoever has a certificate of ours to `port` of this machine; gives the port of `host` to come to.

    Ends its connections with the block. Raises `OSError` if `host` is no address of this machine.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, certified)

    async def serve(stream: TLSStream) -> None:
        async with stream:
            try:
                with anyio.fail_after(CONNECT_S):
                    inside = await anyio.connect_tcp(LOOPBACK, port)
            except (OSError, TimeoutError) as e:
                log.warning("nothing answers there", extra={"port": port, "reason": str(e)})
                return
            async with inside:
                await _relay(inside, stream)

    async with await anyio.create_tcp_listener(local_host=host, local_port=0) as listener:
        secured = _Secured(listener, context, standard_compatible=False, handshake_timeout=CONNECT_S)
        async with task_group() as group:
            group.start_soon(secured.serve, _bounded(serve), group)
            yield listener.extra(SocketAttribute.local_port)
            group.cancel_scope.cancel()


async def run_entrance(
    port: int, target: tuple[str, int], certified: Certified, ready: Callable[[], None]
) -> None:
    """Listen at `port` of loopback and lead to `target`, an `open_exit`, until cancelled.

    `ready` is called once connections are accepted. Raises `OSError` if the port cannot be had.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT, certified)
    host, there = target

    async def serve(stream: SocketStream) -> None:
        async with stream:
            try:
                with anyio.fail_after(CONNECT_S):
                    way = await anyio.connect_tcp(
                        host, there, ssl_context=context, tls_hostname=host, tls_standard_compatible=False
                    )
            except (OSError, ssl.SSLError, TimeoutError) as e:
                log.warning("the way is closed", extra={"target": f"{host}:{there}", "reason": str(e)})
                _break(stream)
                return
            async with way:
                await _relay(stream, way)

    async with await anyio.create_tcp_listener(local_host=LOOPBACK, local_port=port) as listener:
        ready()
        await listener.serve(_bounded(serve))


async def _relay(plain: SocketStream, way: TLSStream) -> None:
    """Pass on what comes on either side, and each end by itself. What breaks on one side breaks the other."""

    async def outward() -> None:
        while True:
            try:
                piece = await plain.receive(PIECE)
            except anyio.EndOfStream:
                await way.send(_LENGTH.pack(0))
                return
            await way.send(_LENGTH.pack(len(piece)) + piece)

    async def inward() -> None:
        pieces = BufferedByteReceiveStream(way)
        while True:
            (length,) = _LENGTH.unpack(await pieces.receive_exactly(_LENGTH.size))
            if not length:
                await plain.send_eof()
                return
            await plain.send(await pieces.receive_exactly(length))

    async def both(one: Callable[[], Awaitable[None]]) -> None:
        try:
            await one()
        except _BROKEN:
            _break(plain)
            group.cancel_scope.cancel()

    async with task_group() as group:
        group.start_soon(both, outward)
        group.start_soon(both, inward)


def _break(stream: SocketStream) -> None:
    """End a connection so that its peer does not take it for a regular end."""
    with suppress(OSError):  # it is gone already
        stream.extra(SocketAttribute.raw_socket).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CUT_OFF)
    # Closing a stream of anyio sends a regular end first, and there is no public way around that.
    getattr(stream, "_transport").abort()  # noqa: B009


def _bounded(serve: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    room = anyio.Semaphore(MOST_CONNECTIONS)

    async def bounded(stream: SocketStream | TLSStream) -> None:
        async with room:
            try:
                await serve(stream)
            except _BROKEN as e:
                log.debug("a connection broke", extra={"reason": str(e)})

    return bounded


def _context(protocol: int, certified: Certified) -> ssl.SSLContext:
    """For peers that our authority has certified and no others."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=certified.authority)
    with TemporaryDirectory() as folder:  # the library takes keys from files only; mode 0700
        file = Path(folder, "pem")
        file.write_text(certified.certificate + certified.key, encoding="ascii")
        context.load_cert_chain(file)
    return context


class _Secured(TLSListener):
    @staticmethod
    async def handle_handshake_error(exc: BaseException, stream: AnyByteStream) -> None:
        """Whoever has no certificate is no fault of ours."""
        await anyio.aclose_forcefully(stream)
        log.debug("refused", extra={"reason": str(exc)})
        if not isinstance(exc, Exception):
            raise exc
