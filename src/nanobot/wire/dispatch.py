"""Which requests the wire answers itself, in both eras and over every carrier, and what errors look like."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import anyio

from nanobot.config.model import ServerSettings
from nanobot.errors import NanobotError
from nanobot.wire.call import Call
from nanobot.wire.changes import Listener, Listeners
from nanobot.wire.exchange import Exchange
from nanobot.wire.explain import explain, unknown
from nanobot.wire.extensions import TASKS
from nanobot.wire.home import Home
from nanobot.wire.notifications import OF_THE_LINE
from nanobot.wire.parking import METHODS as MAY_NEED_INPUT
from nanobot.wire.parking import Parking
from nanobot.wire.peer import LEVELS, MAX_SUBSCRIPTIONS, Peer
from nanobot.wire.rpc import (
    BUSY,
    EMPTY,
    INVALID_PARAMS,
    INVALID_REQUEST,
    RESOURCE_NOT_FOUND,
    Notification,
    Payload,
    Request,
    RpcError,
    encode_error,
    encode_response,
)
from nanobot.wire.service import Service
from nanobot.wire.side_tasks import StartSoon
from nanobot.wire.stamp import stamp
from nanobot.wire.tasks import PREFIX as TASK_METHODS
from nanobot.wire.tasks import Tasks
from nanobot.wire.versions import MODERN_VERSIONS

log = logging.getLogger(__name__)

MAX_LISTENERS: Final = 1024
MAX_NOTES: Final = 64
"""Notifications of one client that may be on their way to servers at once."""
FAREWELL_S: Final = 5.0
"""Time for giving up subscriptions after a listener has left."""

LEGACY_ONLY: Final = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
MODERN_ONLY: Final = frozenset({"server/discover", "subscriptions/listen"})

Outcome = Payload | RpcError


class Dispatcher:
    """Answers requests: by itself where the protocol is meant, through the service otherwise."""

    def __init__(
        self, service: Service, settings: ServerSettings, start_soon: StartSoon, home: Home | None = None
    ) -> None:
        """`start_soon` owns calls that go on while their client fetches answers."""
        self.listeners = Listeners()
        self._start_soon = start_soon
        home = home or Home()
        self._tasks = Tasks(home, start_soon)
        self._parking = Parking(service, start_soon, home, self._tasks)
        self._service = service
        self._settings = settings
        self._legacy: dict[str, Callable[[Peer, Exchange], Awaitable[Payload]]] = {
            "initialize": self._initialize,
            "ping": self._ping,
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }

    async def legacy(self, peer: Peer, exchange: Exchange) -> Outcome:
        """The outcome of a request of a legacy client. Raises nothing but cancellation."""
        request = exchange.request
        try:
            own = self._legacy.get(request.method)
            if own is not None:
                return await own(peer, exchange)
            if not peer.initialized:
                raise RpcError(INVALID_REQUEST, f"{request.method} came before initialize")
            if request.method in MODERN_ONLY:
                raise unknown(request.method)
            return await self._service.request(request.method, request.params, exchange.call())
        except Exception as failure:  # the boundary of one request
            return explain(failure)

    def pass_on(self, peer: Peer, note: Notification | Request, values: Mapping[str, str]) -> None:
        """Give a notification of a legacy client to the service, in its own time: it wants no answer.

        `values` came along with it. What comes while too many are under way is dropped.
        """
        if not peer.initialized or note.method in OF_THE_LINE:
            return
        if peer.notes >= MAX_NOTES:
            log.debug("notification dropped: too many are under way", extra={"method": note.method})
            return
        caller = replace(peer.caller, values=values) if values else peer.caller

        async def tell() -> None:
            try:
                await self._service.request(note.method, note.params, Call(caller=caller))
            except Exception as failure:  # the boundary of one notification
                log.debug("notification not passed on", extra={"method": note.method, "reason": str(failure)})
            finally:
                peer.notes -= 1

        if self._start_soon(tell):
            peer.notes += 1

    async def modern(self, exchange: Exchange) -> Outcome:
        """The outcome of a request of a modern client. Raises nothing but cancellation."""
        request = exchange.request
        method = request.method
        try:
            if method in LEGACY_ONLY:
                raise unknown(method)
            description = await self._service.describe(exchange.caller)
            if method == "server/discover":
                about: dict[str, Any] = {
                    "supportedVersions": MODERN_VERSIONS,
                    "capabilities": _with_tasks(description.capabilities),
                }
                if description.instructions:
                    about["instructions"] = description.instructions
                result = Payload.of(about)
            elif method == "subscriptions/listen":
                result = await self._listen(exchange)
            elif method in MAY_NEED_INPUT:
                result = await self._parking.request(exchange)
            elif method.startswith(TASK_METHODS):
                result = await self._tasks.request(exchange)
            else:
                result = await self._service.request(method, request.params, exchange.call())
            return stamp(
                method, result, server_info=description.server_info, ttl_ms=self._settings.list_ttl_ms
            )
        except Exception as failure:  # the boundary of one request
            error = explain(failure)
            if error.rpc_code == RESOURCE_NOT_FOUND:
                return RpcError(INVALID_PARAMS, error.message, error.data)
            return error

    async def forget(self, peer: Peer) -> None:
        """A legacy client has left, for good or for a while: give up what it had subscribed to."""
        for uri in sorted(peer.subscriptions):
            peer.subscriptions.discard(uri)
            await self._follow("resources/unsubscribe", uri, Call(caller=peer.caller))

    async def recall(self, peer: Peer) -> None:
        """A legacy client has come back: ask again for the log and for what it had subscribed to."""
        if peer.asked_level:
            level = Payload.of({"level": LEVELS[peer.least_level]})
            await self._follow_logs(level, Call(caller=peer.caller))
        for uri in sorted(peer.subscriptions):
            await self._follow("resources/subscribe", uri, Call(caller=peer.caller))

    async def _initialize(self, peer: Peer, exchange: Exchange) -> Payload:
        version = peer.introduce(exchange.request.params.object())
        try:
            caller = replace(peer.caller, values=exchange.caller.values)
            description = await self._service.describe(caller)
        except BaseException:
            peer.initialized = False  # a handshake that was refused has not happened
            raise
        result: dict[str, Any] = {
            "protocolVersion": version,
            "capabilities": description.capabilities,
            "serverInfo": description.server_info,
        }
        if description.instructions:
            result["instructions"] = description.instructions
        return Payload.of(result)

    async def _ping(self, peer: Peer, exchange: Exchange) -> Payload:
        return EMPTY

    async def _set_level(self, peer: Peer, exchange: Exchange) -> Payload:
        peer.set_level(exchange.request.params.object())
        await self._follow_logs(exchange.request.params, exchange.call())
        return EMPTY

    async def _follow_logs(self, params: Payload, call: Call) -> None:
        """Have servers log as much as a client wants. One that does not is no trouble of the client's."""
        try:
            await self._service.request("logging/setLevel", params, call)
        except NanobotError as refusal:
            log.debug("log level not passed on", extra={"reason": str(refusal)})

    async def _subscribe(self, peer: Peer, exchange: Exchange) -> Payload:
        uri = _uri(exchange)
        if uri in peer.subscriptions:
            return EMPTY
        if len(peer.subscriptions) >= MAX_SUBSCRIPTIONS:
            raise RpcError(BUSY, f"at most {MAX_SUBSCRIPTIONS} resource subscriptions in one session")
        await self._service.request("resources/subscribe", exchange.request.params, exchange.call())
        if uri in peer.subscriptions:  # another request for the same was faster
            await self._follow("resources/unsubscribe", uri, exchange.call())
        peer.subscriptions.add(uri)
        peer.note("subscriptions")
        return EMPTY

    async def _unsubscribe(self, peer: Peer, exchange: Exchange) -> Payload:
        uri = _uri(exchange)
        if uri in peer.subscriptions:
            peer.subscriptions.discard(uri)
            peer.note("subscriptions")
            await self._service.request("resources/unsubscribe", exchange.request.params, exchange.call())
        return EMPTY

    async def _listen(self, exchange: Exchange) -> Payload:
        if len(self.listeners) >= MAX_LISTENERS:
            raise RpcError(BUSY, f"at most {MAX_LISTENERS} clients can listen at once")
        wanted = exchange.request.params.object().get("notifications")
        if not isinstance(wanted, dict):
            raise RpcError(INVALID_PARAMS, "subscriptions/listen needs params.notifications (an object)")
        listener = Listener(exchange.request.id, wanted, exchange.send, caller=exchange.caller)  # pyright: ignore[reportUnknownArgumentType]
        call = exchange.call()
        followed: list[str] = []
        try:
            for uri in tuple(listener.uris):
                if await self._follow("resources/subscribe", uri, call):
                    followed.append(uri)
                else:
                    del listener.uris[uri]
            listener.acknowledge()  # the first message; no wait may come before `add`
            self.listeners.add(listener)
            await listener.closed.wait()
            return Payload.of({"_meta": listener.meta})
        finally:
            self.listeners.discard(listener)
            with anyio.CancelScope(shield=True), anyio.move_on_after(FAREWELL_S):
                for uri in followed:
                    await self._follow("resources/unsubscribe", uri, call)

    async def _follow(self, method: str, uri: str, call: Call) -> bool:
        """Ask the service to start or stop telling of changes of `uri`; False if it does not do that."""
        try:
            await self._service.request(method, Payload.of({"uri": uri}), call)
        except NanobotError as refusal:
            log.debug("subscription refused", extra={"method": method, "reason": str(refusal)})
            return False
        return True


def encode_outcome(exchange: Exchange, outcome: Outcome) -> bytes:
    """The answer to a request, as JSON. A result that is no JSON becomes an error, here as everywhere."""
    id = exchange.request.id
    if isinstance(outcome, RpcError):
        return encode_error(id, outcome)
    try:
        return encode_response(id, outcome)
    except (TypeError, ValueError, RecursionError) as failure:
        return encode_error(id, explain(failure))


def _with_tasks(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """`capabilities` with what the wire adds to those of every service."""
    return {**capabilities, "extensions": {**capabilities.get("extensions", {}), TASKS: {}}}


def _uri(exchange: Exchange) -> str:
    uri = exchange.request.params.object().get("uri")
    if not isinstance(uri, str):
        raise RpcError(INVALID_PARAMS, f"{exchange.request.method} needs a uri (a string)")
    return uri
