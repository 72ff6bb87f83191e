"""What clients of the MCP endpoint are refused with, and under which status."""

from __future__ import annotations

import logging
from typing import Final

from nanobot.errors import Busy, StoreError
from nanobot.wire.http_request import Header, Refusal
from nanobot.wire.rpc import BUSY, INTERNAL_ERROR, INVALID_REQUEST, Id, RpcError

log = logging.getLogger(__name__)

_RETRY: Final[Header] = (b"retry-after", b"5")


def missing_session(request: Id | None) -> Refusal:
    return Refusal(400, RpcError(INVALID_REQUEST, "Missing session ID"), id=request)


def unknown_session(request: Id | None) -> Refusal:
    return Refusal(404, RpcError(INVALID_REQUEST, "Session not found"), id=request)


def too_full(reason: Busy, request: Id | None) -> Refusal:
    return Refusal(503, RpcError(BUSY, str(reason)), id=request, headers=(_RETRY,))


def stopping() -> Refusal:
    return Refusal(503, RpcError(INTERNAL_ERROR, "the server is stopping"), headers=(_RETRY,))


def store_down(failure: StoreError, request: Id | None) -> Refusal:
    log.warning("the session store does not answer", extra={"reason": str(failure)})
    error = RpcError(INTERNAL_ERROR, "the session store does not answer; try again in a few seconds")
    return Refusal(503, error, id=request, headers=(_RETRY,))


def not_allowed(method: str, allow: Header) -> Refusal:
    return Refusal(405, RpcError(INVALID_REQUEST, f"{method} is not possible here"), headers=(allow,))
