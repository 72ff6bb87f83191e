"""Which addresses a program may reach that is not to reach into this machine or its networks."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

METADATA: Final = frozenset(
    map(
        ipaddress.ip_address,
        "169.254.169.254 169.254.169.253 169.254.170.2 169.254.170.23 100.100.100.200 168.63.129.16 "
        "192.0.0.192 fd00:ec2::254 fd00:ec2::23 fd20:ce::254".split(),
    )
)
"""Where clouds hand credentials to whoever asks from inside. Never allowed, whatever is configured."""

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class AddressRules:
    """`allowed`: names (`*.example.com` too), addresses and networks that may be private."""

    allowed: Sequence[str] = ()

    def permits(self, host: str, address: Address) -> bool:
        """Whether `address`, which the name `host` resolved to, may be connected to."""
        if any(one in METADATA for one in _meanings(address)):
            return False
        if all(one.is_global and not one.is_multicast for one in _meanings(address)):
            return True
        return any(_matches(rule, host, address) for rule in self.allowed)


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
