"""Hearing of changed lists from a modern server: a subscription that is opened again whenever it ends."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

import anyio

from nanobot.wire.client import Connected, ConnectionLost
from nanobot.wire.rpc import METHOD_NOT_FOUND, Payload, RpcError

log = logging.getLogger(__name__)

LONGEST_PAUSE_S: Final = 60.0
LASTED_S: Final = 60.0
"""A stream that lived this long was a good one: the next pause is the shortest again."""


class Listener(Protocol):
    """A connection as this module uses it. `listen` returns or raises when the subscription has ended.

    `acknowledged` takes the params of the acknowledgement; without it, that goes where all news goes.
    """

    @property
    def connected(self) -> Connected: ...

    async def listen(
        self, params: Payload, acknowledged: Callable[[Payload], None] | None = None
    ) -> None: ...


async def keep_listening(listener: Listener, hide: Callable[[str], str]) -> None:
    """Keep one subscription to every list that the server says may change. Returns if there is none.

    What was missed between two subscriptions is unknown; the server's acknowledgement of each one reaches
    the connection's listener, who takes it for a change. What the server says is logged as `hide` leaves it.
    """
    lists = changing_lists(listener.connected.capabilities)
    if listener.connected.era != "modern" or not lists:
        return
    params = Payload.of({"notifications": {f"{name}ListChanged": True for name in lists}})
    pauses = growing_pauses()
    while True:
        opened = anyio.current_time()
        try:
            await listener.listen(params)
        except RpcError as refusal:
            if refusal.rpc_code == METHOD_NOT_FOUND:
                return
            log.info("subscription refused", extra={"reason": hide(refusal.message)})
        except ConnectionLost as lost:
            log.debug("subscription ended", extra={"reason": hide(lost.reason)})
        if anyio.current_time() - opened > LASTED_S:
            pauses = growing_pauses()
        await anyio.sleep(next(pauses))


def changing_lists(capabilities: Mapping[str, Any]) -> list[str]:
    """Which of `tools`, `prompts`, `resources` the server announces changes of."""
    return [
        name
        for name in ("tools", "prompts", "resources")
        if isinstance(promise := capabilities.get(name), dict) and promise.get("listChanged") is True  # pyright: ignore[reportUnknownMemberType]
    ]


def growing_pauses() -> Iterator[float]:
    """Seconds to wait before each next try: from 1 to 60, doubled each time, spread by a fifth."""
    pause = 1.0
    while True:
        yield pause * random.uniform(0.8, 1.2)
        pause = min(pause * 2, LONGEST_PAUSE_S)
