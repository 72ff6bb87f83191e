"""So many tries a minute from one place, and no more."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from starlette.types import Scope

MOST_PEERS: Final = 10_000


class RateLimit:
    """Counts per client address in windows of `window_s` seconds; remembers the last `MOST_PEERS` of them."""

    def __init__(self, limit: int, clock: Callable[[], float], *, window_s: float = 60.0) -> None:
        self._limit = limit
        self._window_s = window_s
        self._clock = clock
        self._counts: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def wait_s(self, scope: Scope) -> int:
        """Seconds to wait before the next try; 0 if there is one left. Counts nothing."""
        began, count = self._counts.get(peer_of(scope), (0.0, 0))
        left = began + self._window_s - self._clock()
        return max(1, math.ceil(left)) if count >= self._limit and left > 0 else 0

    def count(self, scope: Scope) -> None:
        """One more try."""
        peer, now = peer_of(scope), self._clock()
        began, count = self._counts.get(peer, (now, 0))
        if now - began >= self._window_s:
            began, count = now, 0
        self._counts[peer] = (began, count + 1)
        self._counts.move_to_end(peer)
        if len(self._counts) > MOST_PEERS:
            self._counts.popitem(last=False)


def peer_of(scope: Scope) -> str:
    """The client's address; of IPv6 the network, because one client has all of it."""
    host = scope["client"][0] if scope.get("client") else ""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(ip_network((address, 64), strict=False))
    return host
