"""The envelope of a modern request: everything a handshake would say, in `params._meta` and in headers."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from nanobot.wire.call import Caller
from nanobot.wire.exchange import Meta
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

NAMED_BY: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The member of the params that is repeated in the header `Mcp-Name`, by method."""
_BASE64_START: Final = "=?base64?"
_BASE64_END: Final = "?="


class _Named(msgspec.Struct):
    name: Any = None
    uri: Any = None


_decode_named = msgspec.json.Decoder(_Named).decode


def open_envelope(
    request: Request, meta: Meta, *, account: str = "", headers: Mapping[bytes, bytes] | None = None
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
        era="modern",
        version=version,
        capabilities=capabilities if isinstance(capabilities, dict) else {},  # pyright: ignore[reportUnknownArgumentType]
        client=client if isinstance(client, dict) else {},  # pyright: ignore[reportUnknownArgumentType]
    )


def unsupported(requested: str, supported: Iterable[str]) -> RpcError:
    data = Payload.of({"supported": list(supported), "requested": requested})
    return RpcError(UNSUPPORTED_VERSION, f"unsupported protocol version {requested!r}", data)


def repeated_header(headers: Iterable[tuple[bytes, bytes]]) -> RpcError | None:
    """A routing header given twice is refused: readers of the first and of the last would disagree."""
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in (VERSION_HEADER, METHOD_HEADER, NAME_HEADER):
            if name in seen:
                return RpcError(HEADER_MISMATCH, f"header {name.decode()} appears more than once")
            seen.add(name)
    return None


def _check_headers(request: Request, version: Any, headers: Mapping[bytes, bytes]) -> None:
    if _text(headers.get(VERSION_HEADER)) != version:
        raise RpcError(HEADER_MISMATCH, "header mcp-protocol-version does not match params._meta")
    if _text(headers.get(METHOD_HEADER)) != request.method:
        raise RpcError(HEADER_MISMATCH, f"header mcp-method does not match the method {request.method!r}")
    member = NAMED_BY.get(request.method)
    if member is None:
        return
    name = getattr(_decode_named(request.params.raw), member)
    if name is not None and _header_value(_text(headers.get(NAME_HEADER))) != name:
        raise RpcError(HEADER_MISMATCH, f"header mcp-name does not match params.{member}")


def _text(header: bytes | None) -> str | None:
    return None if header is None else header.decode("latin-1")


def _header_value(text: str | None) -> str | None:
    """A header value may be `=?base64?…?=` around UTF-8. None if that is malformed: it matches nothing."""
    if text is None or not (text.startswith(_BASE64_START) and text.endswith(_BASE64_END)):
        return text
    payload = text[len(_BASE64_START) : -len(_BASE64_END)]
    try:
        decoded = base64.b64decode(payload, validate=True)
        # Two spellings of one value would let a header and a body look different to somebody between.
        return decoded.decode() if base64.b64encode(decoded).decode() == payload else None
    except (binascii.Error, ValueError):
        return None
