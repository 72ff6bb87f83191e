"""The port: bound first, its owner named when it is taken; and a clean stop."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from nanobot.errors import ConfigError
from nanobot.server.listener import PortBusy, find_owner, open_listener


def test_a_taken_port_names_its_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortBusy, match=f"Port {port} ") as raised:
            open_listener("127.0.0.1", port)
        if Path("/proc/net/tcp").exists():
            assert f"(pid {os.getpid()})" in str(raised.value)
            assert find_owner(port) == raised.value.owner


def test_localhost_listens_on_every_loopback_address_with_one_port() -> None:
    listener = open_listener("localhost", 0)
    try:
        assert listener.url == f"http://localhost:{listener.port}"
        assert {s.getsockname()[1] for s in listener.sockets} == {listener.port}
        assert all(s.getsockname()[0] in ("127.0.0.1", "::1") for s in listener.sockets)
    finally:
        listener.close()


def test_a_host_that_is_not_here_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="Cannot listen on"):
        open_listener("no-such-host.invalid", 0)
    with pytest.raises(ConfigError, match="Cannot listen on"):
        open_listener("203.0.113.7", 0)


def test_nobody_owns_a_free_port() -> None:
    listener = open_listener("127.0.0.1", 0)
    listener.close()
    assert find_owner(listener.port) == ""
