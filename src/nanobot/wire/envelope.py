"""The envelope of a modern request: everything a handshake would say, in `params._meta` and in headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from nanobot.wire.call import Caller
from nanobot.wire.exchange import Meta
from nanobot.wire.header_values import header_value, plain_value
from nanobot.wire.rpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    UNSUPPORTED_VERSION,
    Payload,
    Request,
    RpcError,
)
from nanobot.wire.versions import META_CAPABILITIES, META_CLIENT_INFO, META_VERSION, MODERN_VERSIONS

VERSION_HEADER: Final = b"mcp-protocol-version"
METHOD_HEADER: Final = b"mcp-method"
NAME_HEADER: Final = b"mcp-name"

NAMED_BY: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The member of the params that is repeated in the header `Mcp-Name`, by method."""


class _Named(msgspec.Struct):
    name: Any = None
    uri: Any = None
    taskId: Any = None


_decode_named = msgspec.json.Decoder(_Named).decode


def open_envelope(
    request: Request,
    meta: Meta,
    *,
    account: str = "",
    target: str = "",
    headers: Mapping[bytes, bytes] | None = None,
) -> Caller:
    """Who makes a modern request. `headers` (lower-case names) are None where there are none.

    The checks come in the order in which a client can act on them. Raises `RpcError`: -32602 without
    an envelope, -32020 if header and body disagree, -32022 for a version we do not serve.
    """
    missing = [key for key in (META_VERSION, META_CAPABILITIES) if key not in meta]
    if missing:
        raise RpcError(INVALID_PARAMS, f"params._meta lacks {' and '.join(missing)}")
    version = meta[META_VERSION]
    if headers is not None:
        _check_headers(request, version, headers)
    if not isinstance(version, str):
        raise RpcError(INVALID_PARAMS, f"{META_VERSION} must be a string")
    if version not in MODERN_VERSIONS:
        raise unsupported(version, MODERN_VERSIONS)
    capabilities = meta[META_CAPABILITIES]
    client = meta.get(META_CLIENT_INFO)
    return Caller(
        account=account,
        target=target,
        era="modern",
        version=version,
        capabilities=capabilities if isinstance(capabilities, dict) else {},  # pyright: ignore[reportUnknownArgumentType]
        client=client if isinstance(client, dict) else {},  # pyright: ignore[reportUnknownArgumentType]
    )


def unsupported(requested: str, supported: Iterable[str]) -> RpcError:
    data = Payload.of({"supported": list(supported), "requested": requested})
    return RpcError(UNSUPPORTED_VERSION, f"unsupported protocol version {requested!r}", data)


def repeated_header(headers: Iterable[tuple[bytes, bytes]]) -> RpcError | None:
    """A header of the protocol given twice is refused: readers of the first and the last would disagree."""
    seen: set[bytes] = set()
    for name, _ in headers:
        if name.startswith(b"mcp-"):
            if name in seen:
                return RpcError(HEADER_MISMATCH, f"header {name.decode()} appears more than once")
            seen.add(name)
    return None


def _check_headers(request: Request, version: Any, headers: Mapping[bytes, bytes]) -> None:
    if plain_value(headers.get(VERSION_HEADER)) != version:
        raise RpcError(HEADER_MISMATCH, "header mcp-protocol-version does not match params._meta")
    if plain_value(headers.get(METHOD_HEADER)) != request.method:
        raise RpcError(HEADER_MISMATCH, f"header mcp-method does not match the method {request.method!r}")
    member = NAMED_BY.get(request.method)
    if member is None:
        return
    name = getattr(_decode_named(request.params.raw), member)
    if name is not None and header_value(headers.get(NAME_HEADER)) != name:
        raise RpcError(HEADER_MISMATCH, f"header mcp-name does not match params.{member}")
