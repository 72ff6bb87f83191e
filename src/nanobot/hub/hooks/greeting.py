"""The `session` hooks: what happens when a client begins to use us, in the way of its era.

A legacy client shakes hands, and each handshake passes the hooks. A modern one sends requests that belong
to a context; the first request of a context passes them, and what was said then holds for the others.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import anyio
import msgspec

from nanobot.hub.hooks.events import EventHooks
from nanobot.wire.call import Call, Caller
from nanobot.wire.rpc import RpcError

SESSION: Final = "session"
MOST_CONTEXTS: Final = 10_000
"""How many contexts are remembered; of more, those that rested longest pass the hooks again."""

_Context = tuple[str, str, bytes]
_Meta = Mapping[str, Any]


@dataclass(slots=True)
class _Greeted:
    meta: _Meta
    used_at: float


@dataclass(slots=True)
class _UnderWay:
    """Hooks that run for a context; whoever comes meanwhile shares what becomes of it."""

    done: anyio.Event = field(default_factory=anyio.Event)
    meta: _Meta | None = None
    refusal: RpcError | None = None


class Greetings:
    """Runs `hooks` for clients. A context that was not used for `idle_s` seconds begins anew."""

    def __init__(
        self, hooks: EventHooks, *, idle_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._hooks = hooks
        self._idle_s = idle_s
        self._clock = clock
        self._greeted: dict[_Context, _Greeted] = {}
        """Those used last come last."""
        self._under_way: dict[_Context, _UnderWay] = {}

    async def greet(self, caller: Caller) -> _Meta:
        """The `_meta` that the hooks answered with for the session or context of `caller`.

        Raises `HooksFailed` for one that is not let in; a context is asked about again with its next request.
        """
        if caller.era == "legacy":
            return await self._run(caller)
        context = _context(caller)
        while True:
            if (known := self._known(context)) is not None:
                return known
            other = self._under_way.get(context)
            if other is None:
                return await self._begin(context, caller)
            await other.done.wait()
            if other.refusal is not None:
                raise other.refusal
            if other.meta is not None:
                return other.meta  # else its caller left too early: somebody has to do it all the same

    async def _begin(self, context: _Context, caller: Caller) -> _Meta:
        mine = self._under_way[context] = _UnderWay()
        try:
            mine.meta = await self._run(caller)
        except RpcError as refusal:
            mine.refusal = refusal
            raise
        finally:
            del self._under_way[context]
            mine.done.set()
        if len(self._greeted) >= MOST_CONTEXTS:
            del self._greeted[next(iter(self._greeted))]
        self._greeted[context] = _Greeted(mine.meta, self._clock())
        return mine.meta

    def _known(self, context: _Context) -> _Meta | None:
        known = self._greeted.pop(context, None)
        now = self._clock()
        if known is None or now - known.used_at > self._idle_s:
            return None
        known.used_at = now
        self._greeted[context] = known
        return known.meta

    async def _run(self, caller: Caller) -> _Meta:
        payload = {
            "url": caller.target,
            "sessionId": caller.session or caller.thread,
            "account": caller.account,
            "client": dict(caller.client),
            "_meta": dict(caller.meta),
        }
        after = await self._hooks.run(SESSION, payload, Call(caller=caller))
        meta = after.get("_meta")
        return cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}


def _context(caller: Caller) -> _Context:
    """What the requests of one modern client have in common.

    Those that name a session or thread belong to it. What a client calls itself counts as well: hooks are
    shown it, so what they said of one client is not what they would say of another.
    """
    place = caller.session or caller.thread or caller.target
    client = msgspec.json.encode(caller.client, order="sorted")
    return caller.account, place, hashlib.sha256(client).digest()
