"""Reverse ports: a listener of ours, `nanobot proxy` as a real process, and plain sockets at both ends."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread

import anyio
import pytest
from anyio import to_thread
from tests.peers.programs import clean_env, free_port, nanobot

from nanobot.upstream.certificates import Certified, certify
from nanobot.upstream.tunnel import open_exit

pytestmark = pytest.mark.anyio

HERE = "127.0.0.1"
SECONDS = 20


def variables(certified: Certified, listen: int, target: int) -> dict[str, str]:
    return {
        "LISTEN_PORT": str(listen),
        "TARGET_HOST": HERE,
        "TARGET_PORT": str(target),
        "CA_CERT": certified.authority,
        "CLIENT_CERT": certified.certificate,
        "CLIENT_KEY": certified.key,
    }


@contextmanager
def proxy(home: Path, certified: Certified, target: int) -> Generator[int]:
    """`nanobot proxy` as a process; the port of loopback at which it listens."""
    listen = free_port()
    env = clean_env(home) | variables(certified, listen, target)
    argv = [sys.executable, "-m", "nanobot", "proxy"]
    with subprocess.Popen(argv, env=env, cwd=home, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield listen
        finally:
            process.terminate()
            assert process.wait(SECONDS) == 0


@asynccontextmanager
async def tunnel(home: Path, port: int) -> AsyncGenerator[int]:
    """Where `port` of this machine can be reached through both ends."""
    server, client = certify(HERE)
    async with open_exit(HERE, port, server) as exit_port:
        with proxy(home, client, exit_port) as listen:
            yield listen


@contextmanager
def listening() -> Generator[socket.socket]:
    with socket.create_server((HERE, 0)) as listener:
        listener.settimeout(SECONDS)
        yield listener


def port_of(listener: socket.socket) -> int:
    return listener.getsockname()[1]


def connected(port: int) -> socket.socket:
    return socket.create_connection((HERE, port), timeout=SECONDS)


def everything(connection: socket.socket) -> bytes:
    """What comes until the peer has finished."""
    connection.settimeout(SECONDS)
    return b"".join(iter(lambda: connection.recv(65536), b""))


async def test_one_side_can_finish_while_the_other_goes_on(tmp_path: Path) -> None:
    asked, answered = b"q" * 3_000_000, b"a" * 5_000_000

    def serve(listener: socket.socket, seen: list[bytes]) -> None:
        with listener.accept()[0] as connection:
            seen.append(everything(connection))  # only an end that was passed on lets this return
            connection.sendall(answered)

    def use(port: int) -> bytes:
        with connected(port) as client:
            client.sendall(asked)
            client.shutdown(socket.SHUT_WR)
            return everything(client)

    with listening() as listener:
        seen: list[bytes] = []
        thread = Thread(target=serve, args=(listener, seen))
        thread.start()
        async with tunnel(tmp_path, port_of(listener)) as port:
            assert await to_thread.run_sync(use, port) == answered
        await to_thread.run_sync(thread.join)
        assert seen == [asked]


async def test_the_side_that_serves_can_finish_first(tmp_path: Path) -> None:
    def serve(listener: socket.socket, seen: list[bytes]) -> None:
        with listener.accept()[0] as connection:
            connection.sendall(b"welcome")
            connection.shutdown(socket.SHUT_WR)
            seen.append(everything(connection))

    def use(port: int) -> bytes:
        with connected(port) as client:
            told = everything(client)
            client.sendall(b"thanks")
            return told

    with listening() as listener:
        seen: list[bytes] = []
        thread = Thread(target=serve, args=(listener, seen))
        thread.start()
        async with tunnel(tmp_path, port_of(listener)) as port:
            assert await to_thread.run_sync(use, port) == b"welcome"
            await to_thread.run_sync(thread.join)
        assert seen == [b"thanks"]


async def test_a_connection_that_breaks_is_not_taken_for_one_that_ends(tmp_path: Path) -> None:
    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.sendall(b"half of it")
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        connection.close()

    def use(port: int) -> None:
        with connected(port) as client:
            assert client.recv(100) == b"half of it"
            client.sendall(b"x")
            with pytest.raises(ConnectionResetError):
                everything(client)

    with listening() as listener:
        thread = Thread(target=serve, args=(listener,))
        thread.start()
        async with tunnel(tmp_path, port_of(listener)) as port:
            await to_thread.run_sync(use, port)
        await to_thread.run_sync(thread.join)


async def test_many_connections_at_once_do_not_hold_each_other_up(tmp_path: Path) -> None:
    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            async for piece in stream:
                await stream.send(piece.upper())

    async def use(port: int, word: bytes) -> None:
        async with await anyio.connect_tcp(HERE, port) as stream:
            for _ in range(20):
                await stream.send(word)
                got = b""
                while len(got) < len(word):
                    got += await stream.receive()
                assert got == word.upper()

    async with (
        await anyio.create_tcp_listener(local_host=HERE) as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, serve)
        service = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with tunnel(tmp_path, service) as port:
            async with await anyio.connect_tcp(HERE, port), anyio.create_task_group() as users:  # one is mute
                for number in range(30):
                    users.start_soon(use, port, b"word %d " % number * 500)
        group.cancel_scope.cancel()


def wrapped(context: ssl.SSLContext, plain: socket.socket) -> ssl.SSLSocket:
    return context.wrap_socket(plain, server_hostname=HERE, suppress_ragged_eofs=False)


async def test_nobody_without_our_certificate_reaches_the_port(tmp_path: Path) -> None:
    server, client = certify(HERE)
    _, stranger = certify(HERE)
    forged = replace(stranger, authority=client.authority)  # believes us, but we do not know it

    def refused(context: ssl.SSLContext, port: int) -> None:
        with connected(port) as plain, wrapped(context, plain) as secured:
            with pytest.raises((ssl.SSLError, ConnectionError)):  # in TLS 1.3 the first answer tells it
                secured.recv(1)

    with listening() as listener:
        listener.settimeout(0)
        async with open_exit(HERE, port_of(listener), server) as port:
            nobody = ssl.create_default_context(cadata=client.authority)
            await to_thread.run_sync(refused, nobody, port)
            with proxy(tmp_path, forged, port) as listen:
                with connected(listen) as one, pytest.raises(ConnectionResetError):
                    await to_thread.run_sync(everything, one)
            with pytest.raises(BlockingIOError):
                listener.accept()


async def test_the_inner_end_believes_only_the_place_that_the_certificate_names(tmp_path: Path) -> None:
    server, client = certify("192.0.2.1")
    with listening() as listener:
        listener.settimeout(0)
        async with open_exit(HERE, port_of(listener), server) as port:
            with proxy(tmp_path, client, port) as listen, connected(listen) as one:
                with pytest.raises(ConnectionResetError):
                    await to_thread.run_sync(everything, one)
            with pytest.raises(BlockingIOError):
                listener.accept()


async def test_where_nothing_listens_the_connection_breaks(tmp_path: Path) -> None:
    async with tunnel(tmp_path, free_port()) as port:
        with connected(port) as one, pytest.raises(ConnectionResetError):
            await to_thread.run_sync(everything, one)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"CLIENT_KEY": ""}, "CLIENT_KEY is not set"),
        ({"LISTEN_PORT": "http"}, "LISTEN_PORT must be a port"),
        ({"CA_CERT": "/nowhere"}, "CA_CERT is neither PEM text nor a file"),
        ({"LISTEN_PORT": "{busy}"}, "cannot be listened at"),
    ],
)
def test_what_is_wrong_with_its_variables_is_told(tmp_path: Path, change: dict[str, str], words: str) -> None:
    with listening() as listener:
        busy = str(port_of(listener))
        change = {name: value.replace("{busy}", busy) for name, value in change.items()}
        env = variables(certify(HERE)[1], free_port(), 1) | change
        ran = nanobot("proxy", home=tmp_path, **env)  # type: ignore[arg-type]
    assert ran.returncode == 2
    assert words in ran.stderr
    assert "BEGIN" not in ran.stderr
