"""Hearing of single resources from a modern server: one stream for all that are wanted.

What a stream tells of cannot be changed. Whenever other resources are wanted, another stream takes its place,
and the one before it ends only after that: nothing goes unheard in between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup

from nanobot.wire.client import ConnectionLost, Heard
from nanobot.wire.listening import LASTED_S, Listener, growing_pauses
from nanobot.wire.notifications import RESOURCE_UPDATED
from nanobot.wire.rpc import Payload, RpcError

log = logging.getLogger(__name__)

ANSWER_S: Final = 10.0
"""How long a server may take to say which resources it will tell of."""


class Following:
    """Belongs to one connection. `group` owns the streams, `heard` is told what went unheard.

    What the server says is logged as `hide` leaves it.
    """

    def __init__(
        self, listener: Listener, heard: Heard, group: TaskGroup, *, hide: Callable[[str], str]
    ) -> None:
        self._hide = hide
        self._listener = listener
        self._heard = heard
        self._group = group
        self._lock = anyio.Lock()
        self._stream: _Stream | None = None

    async def agree(self, wanted: Callable[[], frozenset[str]]) -> frozenset[str]:
        """Have the server tell of the resources that are `wanted`, and of no others; which of them it will.

        Many changes that come at once share a stream. Raises `RpcError` as the server refuses,
        `ConnectionLost`; then everything stays as it was.
        """
        async with self._lock:
            uris, old = wanted(), self._stream
            if old is not None and old.uris == uris:
                return old.agreed
            self._stream = await self._opened(uris) if uris else None
            if old is not None:
                old.scope.cancel()
            return self._stream.agreed if self._stream is not None else frozenset()

    async def _opened(self, uris: frozenset[str]) -> _Stream:
        stream = _Stream(uris)
        self._group.start_soon(self._keep, stream)
        try:
            with anyio.fail_after(ANSWER_S):
                await stream.settled.wait()
        except TimeoutError:
            stream.failure = ConnectionLost(
                f"it did not acknowledge a subscription within {ANSWER_S:g} s", maybe_sent=True
            )
        except BaseException:
            stream.scope.cancel()
            raise
        if stream.failure is not None:
            stream.scope.cancel()
            raise stream.failure
        return stream

    async def _keep(self, stream: _Stream) -> None:
        """Keep `stream` open until it is cancelled, or the server refuses it at the first try."""
        params = Payload.of({"notifications": {"resourceSubscriptions": sorted(stream.uris)}})
        pauses = growing_pauses()

        def acknowledged(answer: Payload) -> None:
            is_return = stream.settled.is_set()
            stream.take(answer)
            if is_return:  # what happened since the last one is unknown
                for uri in sorted(stream.agreed):
                    self._heard(RESOURCE_UPDATED, Payload.of({"uri": uri}))

        with stream.scope:
            while True:
                opened = anyio.current_time()
                try:
                    await self._listener.listen(params, acknowledged)
                    ending: RpcError | ConnectionLost = ConnectionLost("it ended", maybe_sent=True)
                except (RpcError, ConnectionLost) as e:
                    ending = e
                if not stream.settled.is_set():
                    stream.fail(ending)
                    return
                log.debug("subscription ended", extra={"reason": self._hide(str(ending))})
                if anyio.current_time() - opened > LASTED_S:
                    pauses = growing_pauses()
                await anyio.sleep(next(pauses))


class _Stream:
    """A subscription to `uris`. Settled once the server has acknowledged or refused it."""

    def __init__(self, uris: frozenset[str]) -> None:
        self.uris = uris
        self.agreed: frozenset[str] = frozenset()
        self.failure: RpcError | ConnectionLost | None = None
        self.settled = anyio.Event()
        self.scope = anyio.CancelScope()

    def take(self, acknowledgement: Payload) -> None:
        try:
            told = _Acknowledgement.of(acknowledgement)
        except msgspec.DecodeError:
            told = _Filter()
        self.agreed = self.uris.intersection(told.resourceSubscriptions)
        self.settled.set()

    def fail(self, failure: RpcError | ConnectionLost) -> None:
        self.failure = failure
        self.settled.set()


class _Filter(msgspec.Struct):
    resourceSubscriptions: list[str] = []


class _Acknowledgement(msgspec.Struct):
    notifications: _Filter = msgspec.field(default_factory=_Filter)

    @staticmethod
    def of(params: Payload) -> _Filter:
        return _decode(params.raw).notifications


_decode = msgspec.json.Decoder(_Acknowledgement).decode
