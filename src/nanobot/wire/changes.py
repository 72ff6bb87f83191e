"""Modern clients that listen for changes: each got an acknowledged filter and hears only that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio

from nanobot.wire.call import NOBODY, Audience, Caller
from nanobot.wire.notifications import (
    ACKNOWLEDGED,
    PROMPTS_CHANGED,
    RESOURCE_UPDATED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
)
from nanobot.wire.rpc import INVALID_PARAMS, Id, Payload, RpcError, encode_notification
from nanobot.wire.versions import META_SUBSCRIPTION

MAX_URIS: Final = 1000

_FLAGS: Final = {
    "toolsListChanged": TOOLS_CHANGED,
    "promptsListChanged": PROMPTS_CHANGED,
    "resourcesListChanged": RESOURCES_CHANGED,
}


class Listener:
    """One `subscriptions/listen` request. Its id marks everything it hears."""

    __slots__ = ("_id", "_methods", "_send", "caller", "closed", "uris")

    def __init__(
        self,
        id: Id,
        wanted: Mapping[str, Any],
        send: Callable[[bytes, str | None], None],
        *,
        caller: Caller = NOBODY,
    ) -> None:
        """`wanted` is `params.notifications`. Raises `RpcError` (-32602) if it makes no sense."""
        uris = wanted.get("resourceSubscriptions") or ()
        if not isinstance(uris, list | tuple) or not all(isinstance(uri, str) for uri in uris):  # pyright: ignore[reportUnknownVariableType]
            raise RpcError(INVALID_PARAMS, "notifications.resourceSubscriptions must be a list of URIs")
        if len(uris) > MAX_URIS:  # pyright: ignore[reportUnknownArgumentType]
            raise RpcError(INVALID_PARAMS, f"at most {MAX_URIS} resource subscriptions in one request")
        self._id = id
        self.caller = caller
        self._methods = frozenset(method for flag, method in _FLAGS.items() if wanted.get(flag) is True)
        self._send = send
        self.uris: dict[str, None] = dict.fromkeys(uris)  # pyright: ignore[reportUnknownArgumentType]
        self.closed = anyio.Event()

    @property
    def meta(self) -> dict[str, Any]:
        return {META_SUBSCRIPTION: self._id}

    def acknowledge(self) -> None:
        """Tell the client what it will hear; the first message of its stream."""
        agreed: dict[str, Any] = {flag: True for flag, method in _FLAGS.items() if method in self._methods}
        if self.uris:
            agreed["resourceSubscriptions"] = list(self.uris)
        params = Payload.of({"notifications": agreed, "_meta": self.meta})
        self._send(encode_notification(ACKNOWLEDGED, params), None)

    def hear(self, method: str, params: Payload) -> None:
        fields = params.object()
        uri = fields.get("uri") if method == RESOURCE_UPDATED else None
        if method not in self._methods and uri not in self.uris:
            return
        meta: Any = fields.get("_meta")
        marked: dict[str, Any] = {**fields, "_meta": self.meta}
        if isinstance(meta, dict):
            marked["_meta"] = {**meta, **self.meta}
        self._send(encode_notification(method, Payload.of(marked)), change_key(method, params))


class Listeners:
    """All listen requests of one endpoint or connection."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: set[Listener] = set()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, listener: Listener) -> None:
        self._open.add(listener)

    def discard(self, listener: Listener) -> None:
        self._open.discard(listener)

    def tell(self, method: str, params: Payload, audience: Audience) -> None:
        for listener in tuple(self._open):
            if audience.includes(listener.caller):
                listener.hear(method, params)

    def close(self) -> None:
        """End every listen request with its result: the client learns that this was on purpose."""
        for listener in self._open:
            listener.closed.set()


def change_key(method: str, params: Payload) -> str:
    """Changes with equal keys say the same; the last one is enough. Raises `RpcError` for senseless ones."""
    return f"{method} {params.object().get('uri', '')}"
