"""The resources that a server is to tell about: each asked for once, however many want to know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import anyio

from nanobot.errors import Busy

MAX_FOLLOWED: Final = 20_000
"""Resources that one connection may be asked to tell about."""

Ask = Callable[[str], Awaitable[None]]
"""Ask the server to begin or stop telling of a URI. Raises whatever keeps it from doing so."""


@dataclass(slots=True, eq=False)
class _Followed:
    users: int = 0
    is_open: bool = False
    lock: anyio.Lock = field(default_factory=anyio.Lock)


class Subscriptions:
    """Outlives the connections to its server; what is in it is asked for again on each of them."""

    def __init__(self, begin: Ask, stop: Ask) -> None:
        self._begin = begin
        self._stop = stop
        self._followed: dict[str, _Followed] = {}

    def __len__(self) -> int:
        return len(self._followed)

    def uris(self) -> frozenset[str]:
        return frozenset(self._followed)

    async def add(self, uri: str) -> None:
        """Raises what the server's refusal raises, `Busy`; then it is as if nobody had asked."""
        followed = self._followed.get(uri)
        if followed is None:
            if len(self._followed) >= MAX_FOLLOWED:
                raise Busy(f"At most {MAX_FOLLOWED} resources of one server can be subscribed to at once.")
            followed = self._followed[uri] = _Followed()
        followed.users += 1
        try:
            async with followed.lock:
                if not followed.is_open:
                    await self._begin(uri)
                    followed.is_open = True
        except BaseException:
            followed.users -= 1
            self._forget_unused(uri, followed)
            raise

    async def remove(self, uri: str) -> None:
        """One user less. What nobody follows is no error."""
        followed = self._followed.get(uri)
        if followed is None:
            return
        followed.users -= 1
        async with followed.lock:
            if self._forget_unused(uri, followed) and followed.is_open:
                await self._stop(uri)

    def _forget_unused(self, uri: str, followed: _Followed) -> bool:
        if followed.users > 0 or self._followed.get(uri) is not followed:
            return False
        del self._followed[uri]
        return True
