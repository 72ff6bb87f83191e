"""The base of what stands around a source: it is the source, but for what a subclass does otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nanobot.hub.relay import Introduced
from nanobot.wire.call import NOBODY, Call, Caller
from nanobot.wire.rpc import Payload
from nanobot.wire.source import Changed, Entry, Kind, Source, Told


class Around:
    """Satisfies `Source`, and `Introduced` if `inner` does."""

    def __init__(self, inner: Source) -> None:
        self._inner = inner
        if isinstance(inner, Introduced):
            self.ready = inner.ready

    @property
    def name(self) -> str:
        return self._inner.name

    async def listing(self, kind: Kind, caller: Caller = NOBODY) -> Sequence[Entry]:
        return await self._inner.listing(kind, caller)

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        return await self._inner.request(method, params, call)

    def watch(self, changed: Changed) -> Callable[[], None]:
        return self._inner.watch(changed)

    def hear(self, told: Told) -> Callable[[], None]:
        return self._inner.hear(told)
