"""The listening socket: bound first, so that a busy port is known before anything is started."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nanobot.errors import Busy, ConfigError

BACKLOG = 2048
_LISTENING = "0A"  # state of a socket in /proc/net/tcp


class PortBusy(Busy):
    """Somebody else listens on the port. `owner` is `name (pid N)` where the system tells, else ""."""

    code = "port_busy"

    def __init__(self, host: str, port: int, owner: str) -> None:
        by = f" by {owner}" if owner else ""
        super().__init__(
            f"Port {port} on {host} is taken{by}. Stop that program, or listen elsewhere with "
            f"--listen-address {host}:{port + 1 if port < 65535 else port - 1}."
        )
        self.port = port
        self.owner = owner


@dataclass(frozen=True, slots=True)
class Listener:
    """Bound sockets of one port; `localhost` has one for each address family."""

    url: str
    port: int
    sockets: tuple[socket.socket, ...]

    def close(self) -> None:
        for one in self.sockets:
            one.close()


def open_listener(host: str, port: int) -> Listener:
    """Bind `host`:`port`; port 0 takes a free one. Raises `PortBusy`, or `ConfigError` for a useless host."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as e:
        raise ConfigError(f"Cannot listen on {host!r}: {e}.") from e
    # IPv4 first: it chooses the port if any will do, and IPv6 may be switched off.
    addresses = sorted({(family, address[0]) for family, *_, address in found})
    sockets: list[socket.socket] = []
    try:
        for family, address in addresses:
            bound = _bind(family, str(address), port, host, is_optional=bool(sockets))
            if bound is not None:
                sockets.append(bound)
                port = bound.getsockname()[1]
    except BaseException:
        for one in sockets:
            one.close()
        raise
    shown = f"[{host}]" if ":" in host else host
    return Listener(f"http://{shown}:{port}", port, tuple(sockets))


def _bind(
    family: socket.AddressFamily, address: str, port: int, host: str, *, is_optional: bool
) -> socket.socket | None:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((address, port))
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except OSError as e:
        bound.close()
        if e.errno == errno.EADDRINUSE:
            raise PortBusy(host, port, find_owner(port)) from e
        if is_optional:
            return None
        raise ConfigError(f"Cannot listen on {host}:{port}: {e.strerror}.") from e
    return bound


def find_owner(port: int) -> str:
    """`name (pid N)` of the process that listens on `port`, as far as /proc tells us; else ""."""
    sockets = set(_listening(port))
    for process in Path("/proc").glob("[0-9]*") if sockets else ():
        with suppress(OSError):  # gone meanwhile, or somebody else's
            if any(_leads_to(fd, sockets) for fd in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()} (pid {process.name})"
    return ""


def _leads_to(descriptor: Path, sockets: set[str]) -> bool:
    try:
        return str(descriptor.readlink()) in sockets
    except OSError:
        return False  # closed meanwhile


def _listening(port: int) -> Iterator[str]:
    """The sockets that listen on `port`, as links in /proc/*/fd call them."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] == _LISTENING and int(columns[1].rpartition(":")[2], 16) == port:
                    yield f"socket:[{columns[9]}]"
