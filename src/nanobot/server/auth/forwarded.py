"""What proxies say about a request, believed only of proxies that are trusted.

`X-Forwarded-For`, `-Proto` and `-Host` then replace the address, scheme and host of the request; the headers
that name a user (`X-Forwarded-User` …) are put aside for the authenticator. From anybody else all of them are
removed before anything can look at them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from nanobot.server.auth.principal import NotSignedIn, Principal, named_account
from nanobot.server.problems import Header

SCHEME: Final = "proxy"

_OTHER: Final = (b"forwarded", b"x-original-url", b"x-rewrite-url", b"x-real-ip")
_HOST: Final = re.compile(rb"[A-Za-z0-9._-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")


class Forwarding:
    """Rewrites requests of trusted proxies and cleans all others. Stands before everything else."""

    def __init__(self, inner: ASGIApp, trusted: Sequence[str]) -> None:
        self._inner = inner
        self._trusted = [ip_network(network) for network in trusted]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            said = [pair for pair in scope["headers"] if _is_said_by_proxies(pair[0])]
            if said:
                scope["headers"] = [pair for pair in scope["headers"] if not _is_said_by_proxies(pair[0])]
            client = scope.get("client")
            if client and self._is_trusted(client[0]):
                self._believe(scope, _each_once(said))
        await self._inner(scope, receive, send)

    def _believe(self, scope: Scope, said: Mapping[bytes, bytes]) -> None:
        state = scope.setdefault("state", {})
        state["remote"] = said
        if addresses := said.get(b"x-forwarded-for"):
            scope["client"] = (self._client(addresses), 0)
        proto = said.get(b"x-forwarded-proto", b"").rpartition(b",")[2].strip().lower()
        if proto in (b"http", b"https"):
            scope["scheme"] = proto.decode()
        host = said.get(b"x-forwarded-host", b"").rpartition(b",")[2].strip()
        if _HOST.fullmatch(host):
            scope["headers"] = [(b"host", host), *(p for p in scope["headers"] if p[0] != b"host")]
            state["forwarded"] = True

    def _client(self, addresses: bytes) -> str:
        """The nearest address that is no proxy of ours: further ones are what that client made up."""
        nearest = ""
        for part in reversed(addresses.decode("latin-1").split(",")):
            nearest = part.strip()
            if not self._is_trusted(nearest):
                break
        return nearest[:100]

    def _is_trusted(self, host: str) -> bool:
        try:
            address: IPv4Address | IPv6Address = ip_address(host)
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._trusted)


def remote_principal(scope: Scope) -> Principal | None:
    """The user that a trusted proxy names; None if it names none. Raises `NotSignedIn`."""
    said: Mapping[bytes, bytes] = scope["state"].get("remote", {})
    if b"x-forwarded-user" not in said:
        return None
    account = named_account(_text(said[b"x-forwarded-user"]))
    name = said.get(b"x-forwarded-name") or said.get(b"x-forwarded-preferred-username", b"")
    email = said.get(b"x-forwarded-email", b"")
    return Principal(account=account, scheme=SCHEME, name=_text(name), email=_text(email))


def _is_said_by_proxies(name: bytes) -> bool:
    return name.startswith(b"x-forwarded-") or name in _OTHER


def _each_once(headers: Iterable[Header]) -> Mapping[bytes, bytes]:
    """Headers by name, without those that came twice: one of the two may be the client's own."""
    seen: dict[bytes, bytes] = {}
    twice: set[bytes] = set()
    for name, value in headers:
        if name in seen:
            twice.add(name)
        seen[name] = value
    return {name: value for name, value in seen.items() if name not in twice}


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as e:
        raise NotSignedIn("The proxy names a user in no known alphabet.") from e
