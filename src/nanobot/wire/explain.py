"""What went wrong, in the words of JSON-RPC."""

from __future__ import annotations

import logging

from nanobot.errors import (
    Busy,
    CredentialsRefused,
    LoginRequired,
    NotFound,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from nanobot.ids import new_id
from nanobot.wire.rpc import (
    BUSY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    TIMEOUT,
    Payload,
    RpcError,
)

log = logging.getLogger(__name__)


class NeedsCredentials(RpcError):
    """A server wants a token of the client, or another one, with `scopes`. Where a client reaches that server
    alone through us, HTTP says so with its own status."""

    def __init__(self, message: str, data: Payload, scopes: tuple[str, ...]) -> None:
        super().__init__(INTERNAL_ERROR, message, data)
        self.scopes = scopes


def explain(failure: Exception) -> RpcError:
    """The JSON-RPC error for whatever went wrong. Details of a bug go to the log alone."""
    match failure:
        case RpcError():
            return failure
        case LoginRequired():
            data = {"server": failure.server, "authUrl": failure.auth_url or None}
            return RpcError(INTERNAL_ERROR, str(failure), Payload.of(data))
        case CredentialsRefused():
            data = {"server": failure.server, "reason": failure.reason}
            return NeedsCredentials(str(failure), Payload.of(data), failure.scopes)
        case UpstreamUnavailable():
            data = {"server": failure.server, "reason": failure.reason, "retryable": not failure.for_caller}
            return RpcError(INTERNAL_ERROR, str(failure), Payload.of(data))
        case UpstreamTimeout():
            data = {"server": failure.server, "timeoutMs": round(failure.timeout_s * 1000)}
            return RpcError(TIMEOUT, str(failure), Payload.of(data))
        case UpstreamError():
            return RpcError(INTERNAL_ERROR, str(failure), Payload.of({"server": failure.server}))
        case NotFound():
            return RpcError(INVALID_PARAMS, str(failure))
        case Busy():
            return RpcError(BUSY, str(failure))
        case _:
            id = new_id("err", 8)
            log.error("request failed", exc_info=failure, extra={"id": id})
            return RpcError(INTERNAL_ERROR, "internal error", Payload.of({"id": id}))


def unknown(method: str) -> RpcError:
    return RpcError(METHOD_NOT_FOUND, f"unknown method {method!r}")
