"""Which addresses may be reached on behalf of somebody who is not to reach into this machine or its networks.

A name may mean one address when it is judged and another when it is used. So a name is looked up once, here,
and whoever connects takes the addresses that were judged.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from typing import Final

import anyio

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

METADATA: Final = frozenset(
    map(
        ipaddress.ip_address,
        "169.254.169.254 169.254.169.253 169.254.170.2 169.254.170.23 100.100.100.200 168.63.129.16 "
        "192.0.0.192 fd00:ec2::254 fd00:ec2::23 fd20:ce::254".split(),
    )
)
"""Where clouds hand credentials to whoever asks from inside. Never allowed, whatever is configured."""

LOOKUP_S: Final = 10.0

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class AddressRules:
    """`allowed`: names (`*.example.com` too), addresses and networks that may be private."""

    allowed: tuple[str, ...] = ()

    def permits(self, host: str, address: Address) -> bool:
        """Whether `address`, which the name `host` resolved to, may be connected to."""
        if any(one in METADATA for one in _meanings(address)):
            return False
        if all(one.is_global and not one.is_multicast for one in _meanings(address)):
            return True
        return any(_matches(rule, host, address) for rule in self.allowed)


PUBLIC_ONLY: Final = AddressRules()
"""For whatever a stranger told us to reach."""


class AddressForbidden(OSError):
    """A host leads only to addresses that are not permitted."""


async def find_addresses(host: str, port: int, rules: AddressRules) -> list[Address]:
    """The addresses of `host` that may be connected to, in the order of the system; never none.

    Every spelling that the system understands is looked up like a name (`0x7f.1`, `2130706433`). Raises
    `AddressForbidden`; `OSError` for a host that does not resolve, `TimeoutError` among them.
    """
    try:
        with anyio.fail_after(LOOKUP_S):
            found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as e:
        raise OSError("the name is no host name") from e
    texts = dict.fromkeys(str(address[0]).partition("%")[0] for *_, address in found)
    permitted = [one for one in map(ipaddress.ip_address, texts) if rules.permits(host, one)]
    if not permitted:
        raise AddressForbidden(f"{host} leads to a private or reserved address")
    return permitted


def _meanings(address: Address) -> list[Address]:
    """The address and, of one that carries another inside, that one too."""
    found: list[Address] = [address]
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        found += [inner for inner in (address.ipv4_mapped, address.sixtofour) if inner is not None]
        if address.teredo is not None:
            found += address.teredo
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return found[1:]  # it is nothing but another spelling
    return found


def _matches(rule: str, host: str, address: Address) -> bool:
    rule = rule.lower().rstrip(".")
    host = host.lower().rstrip(".")
    if rule.startswith("*."):
        return host.endswith(rule[1:])
    try:
        network = ipaddress.ip_network(rule, strict=False)
    except ValueError:
        return rule == host
    return any(one.version == network.version and one in network for one in _meanings(address))
