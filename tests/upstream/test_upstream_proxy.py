"""The only way out of a sandbox with `network: proxy`, used by a confined server as programs do."""

from __future__ import annotations

import ipaddress
import sys
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from tests.upstream.world import PEERS, SANDBOX, running, use
from tests.wire.http_peer import Answer, Asked, Peer, serving

from nanobot.addresses import AddressRules
from nanobot.config.model import McpServer, SandboxSettings

pytestmark = pytest.mark.anyio

needs_bubblewrap = pytest.mark.skipif(SANDBOX is None, reason="needs bubblewrap")

FETCH = "import urllib.request; result = urllib.request.urlopen({!r}, timeout=5).read().decode()"
TUNNEL = """
import socket
s = socket.create_connection(("127.0.0.1", 3128), 5)
s.sendall(b"CONNECT {to} HTTP/1.1\\r\\nHost: {to}\\r\\n\\r\\n")
head = s.recv(4096)
if b" 200 " in head.split(b"\\r\\n")[0]:
    s.sendall(b"POST / HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")
    result = b"".join(iter(lambda: s.recv(65536), b"")).decode()
else:
    result = head.decode()
"""


def probe(*allow: str) -> McpServer:
    sandbox = SandboxSettings(network="proxy", allow_hosts=allow)
    return McpServer(
        name="probe", command=sys.executable, args=(str(PEERS / "probe_server.py"),), sandbox=sandbox
    )


async def attempt(server: McpServer, *codes: str) -> list[dict[str, Any]]:
    async with running(server) as upstream:
        return [await use(upstream, "attempt", code=code) for code in codes]


@pytest.mark.parametrize(
    ("address", "allowed", "permitted"),
    [
        ("93.184.216.34", (), True),
        ("2606:4700::1111", (), True),
        ("127.0.0.1", (), False),
        ("10.0.0.1", (), False),
        ("192.168.1.1", (), False),
        ("169.254.1.1", (), False),
        ("100.64.0.1", (), False),
        ("0.0.0.0", (), False),
        ("224.0.0.1", (), False),
        ("::1", (), False),
        ("fe80::1", (), False),
        ("fd00::1", (), False),
        ("::ffff:127.0.0.1", (), False),
        ("::ffff:93.184.216.34", (), True),
        ("64:ff9b::7f00:1", (), False),
        ("2002:7f00:1::", (), False),
        ("127.0.0.1", ("127.0.0.1",), True),
        ("::ffff:10.1.2.3", ("10.0.0.0/8",), True),
        ("10.1.2.3", ("intranet.example",), True),
        ("10.1.2.3", ("*.example",), True),
        ("10.1.2.3", ("other.example",), False),
        ("169.254.169.254", ("169.254.0.0/16",), False),
        ("::ffff:169.254.169.254", ("intranet.example",), False),
        ("64:ff9b::a9fe:a9fe", ("::/0", "0.0.0.0/0"), False),
        ("168.63.129.16", ("168.63.129.16",), False),
        ("fd00:ec2::254", ("fd00::/8",), False),
    ],
)
async def test_r24_which_addresses_may_be_reached(
    address: str, allowed: tuple[str, ...], permitted: bool
) -> None:
    rules = AddressRules(allowed)
    assert rules.permits("intranet.example", ipaddress.ip_address(address)) is permitted


@needs_bubblewrap
async def test_an_allowed_host_is_reached_by_request_and_by_tunnel_and_nothing_else_is() -> None:
    async def on_request(asked: Asked) -> Answer:
        return PlainTextResponse("hello")

    peer = Peer(on_request)
    async with serving(peer) as url:
        port = url.split(":")[2].split("/")[0]
        fetched, tunnelled, direct = await attempt(
            probe("127.0.0.1"),
            f"import urllib.request as u; r = u.Request({url!r}, data=b'{{}}', method='POST'); "
            "result = u.build_opener(u.ProxyHandler({'http': __import__('os').environ['http_proxy']}))"
            ".open(r, timeout=5).read().decode()",
            TUNNEL.format(to=f"127.0.0.1:{port}"),
            f"import socket; socket.create_connection(('127.0.0.1', {port}), 2); result = True",
        )
        assert fetched == {"result": "hello"}
        assert tunnelled["result"].startswith("HTTP/1.1 ")
        assert "failed" in direct
        refused = await attempt(
            probe(), TUNNEL.format(to=f"127.0.0.1:{port}"), TUNNEL.format(to=f"localhost:{port}")
        )
    assert all("403 Forbidden" in answer["result"] for answer in refused)


@needs_bubblewrap
async def test_r24_the_metadata_service_is_refused_whatever_is_allowed() -> None:
    answers = await attempt(
        probe("169.254.0.0/16", "169.254.169.254", "::/0"),
        TUNNEL.format(to="169.254.169.254:80"),
        TUNNEL.format(to="[::ffff:169.254.169.254]:80"),
        TUNNEL.format(to="2852039166:80"),  # the same number in one piece
        FETCH.format("http://169.254.169.254/latest/meta-data/"),
        "import socket; socket.create_connection(('169.254.169.254', 80), 2); result = True",
    )
    assert [("403" in str(answer) or "failed" in answer) for answer in answers] == [True] * 5


@needs_bubblewrap
async def test_what_is_no_request_for_a_proxy_is_told_so() -> None:
    send = """
import socket
s = socket.create_connection(("127.0.0.1", 3128), 5)
s.sendall({!r})
result = s.recv(4096).decode()
"""
    answers = await attempt(
        probe(),
        send.format(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        send.format(b"CONNECT nowhere HTTP/1.1\r\n\r\n"),
        send.format(b"GET ftp://x/ HTTP/1.1\r\n\r\n"),
        send.format(b"GET http://x/" + b"a" * 70_000),
        send.format(b"CONNECT no-such-host.invalid:80 HTTP/1.1\r\n\r\n"),
    )
    statuses = [answer["result"].split(" ")[1] for answer in answers]
    assert statuses == ["400", "400", "400", "431", "502"]
