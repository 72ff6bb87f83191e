"""One request of a client while it is being answered: what is reported about it, and how it is cancelled."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import anyio
import msgspec

from nanobot.wire.call import Call, Caller
from nanobot.wire.notifications import CANCELLED, CHANGES, LOG_MESSAGE, PROGRESS
from nanobot.wire.peer import LEVELS, is_loud, level_of
from nanobot.wire.rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    Id,
    Notification,
    Payload,
    Request,
    RpcError,
    encode_notification,
    is_id,
)
from nanobot.wire.versions import META_LOG_LEVEL, META_PREFIX

log = logging.getLogger(__name__)

Meta = Mapping[str, Any]


class _Meta(msgspec.Struct):
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


_decode_meta = msgspec.json.Decoder(_Meta).decode
_NO_META: Meta = {}


def read_meta(params: Payload) -> Meta:
    """`params._meta`, decoded; empty if there is none. Raises `RpcError` (-32602) if it is no object."""
    raw = params.raw
    if raw == b"{}" or raw == b"null":
        return _NO_META
    try:
        return _decode_meta(raw).meta or _NO_META
    except (msgspec.DecodeError, RecursionError) as e:
        raise RpcError(INVALID_PARAMS, f"params and params._meta must be objects: {e}") from e


def cancelled_by(note: Notification | Request) -> tuple[Id, str] | None:
    """Which request a notification calls off, and why; None if it does no such thing."""
    if note.method != CANCELLED:
        return None
    try:
        fields = note.params.object()
    except RpcError:
        return None
    id = fields.get("requestId")
    return (id, str(fields.get("reason") or "no reason given")) if is_id(id) else None


def stopping(method: str) -> RpcError:
    """What a request of `method` under way is answered when we stop; `data.retryable`: it may be made again.

    Of a tool call nobody knows how far it came.
    """
    data = Payload.of({"reason": "the server is stopping", "retryable": method != "tools/call"})
    return RpcError(INTERNAL_ERROR, "the server is stopping", data)


class Exchange(ABC):
    """A request and its way back. The carrier says how news is sent and how questions are put.

    Leaving `scope` early is how a request is cancelled; `reason` then says why, or `given_up` what to answer.
    """

    __slots__ = (
        "_last_progress",
        "_least_level",
        "_meta",
        "_token",
        "caller",
        "given_up",
        "headers",
        "reason",
        "request",
        "scope",
    )

    def __init__(self, request: Request, meta: Meta, caller: Caller, *, least_level: int = 0) -> None:
        """`least_level` is that of the session; a modern request names its own. May raise `RpcError`."""
        if caller.era == "modern":
            wanted = meta.get(META_LOG_LEVEL)
            least_level = len(LEVELS) if wanted is None else level_of(wanted)
        self.request = request
        self.caller = caller
        self.headers: Mapping[bytes, bytes] | None = None
        self.scope = anyio.CancelScope()
        self.reason = ""
        self.given_up: RpcError | None = None
        self._meta = meta
        self._least_level = least_level
        token = meta.get("progressToken") if meta else None
        self._token: Id | None = token if is_id(token) else None
        self._last_progress: float | None = None

    def call(self) -> Call:
        """What goes along with the request to whoever answers it."""
        meta = self._meta
        if meta:
            meta = {k: v for k, v in meta.items() if not k.startswith(META_PREFIX)}
        return Call(
            caller=self.caller,
            wants_progress=self._token is not None,
            notify=self.notify,
            ask=self.ask if self.caller.era == "legacy" else None,
            meta=meta,
            log_level=LEVELS[self._least_level] if self._least_level < len(LEVELS) else None,
            headers=self.headers,
        )

    def notify(self, method: str, params: Payload) -> None:
        """Send news of this request, unless the client did not ask for it. Never blocks, never fails."""
        try:
            if method == PROGRESS:
                if self._token is not None:
                    news = encode_notification(PROGRESS, self._rising(params))
                    self.send(news, f"{PROGRESS} {self._token!r}")
            elif method == LOG_MESSAGE:
                if is_loud(params.object().get("level"), self._least_level):
                    self.send(encode_notification(LOG_MESSAGE, params))
            elif method not in CHANGES or self.caller.era == "legacy":
                self.send(encode_notification(method, params))
        except (RpcError, TypeError) as malformed:
            log.debug("malformed notification dropped", extra={"method": method, "reason": str(malformed)})

    def cancel(self, reason: str) -> None:
        self.reason = reason
        self.scope.cancel()

    def give_up(self) -> None:
        """End the request because we stop; whoever made it is told so."""
        self.given_up = stopping(self.request.method)
        self.scope.cancel()

    @abstractmethod
    def send(self, message: bytes, key: str | None = None) -> None:
        """Put a message on the way to the client; `key` as in `Outbox`. Never blocks."""

    @abstractmethod
    async def ask(self, method: str, params: Payload) -> Payload:
        """Put a question to the client. Raises `RpcError` for its refusal, or if it cannot be reached."""

    def _rising(self, params: Payload) -> Payload:
        """Progress under the client's own token. Values that do not rise are moved up just enough."""
        fields = dict(params.object())
        value = fields.get("progress")
        if not isinstance(value, int | float):
            value = 0
        last = self._last_progress
        if last is not None and value <= last:
            value = last + (1 if fields.get("total") is None else 0.01)
        self._last_progress = value
        fields["progress"] = value
        fields["progressToken"] = self._token
        return Payload.of(fields)
