"""What the modern era adds to every result. Done by splicing: the rest of a result keeps its bytes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from nanobot.wire.rpc import INTERNAL_ERROR, Payload, RpcError
from nanobot.wire.versions import META_SERVER_INFO

CACHEABLE: Final = frozenset(
    {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
)

Member = msgspec.Raw | msgspec.UnsetType


class _Known(
    msgspec.Struct, rename={"meta": "_meta", "type": "resultType", "ttl": "ttlMs", "scope": "cacheScope"}
):
    """The members we look at; all others are skipped undecoded."""

    type: Member = msgspec.UNSET
    ttl: Member = msgspec.UNSET
    scope: Member = msgspec.UNSET
    meta: Member = msgspec.UNSET


_decode_known = msgspec.json.Decoder(_Known).decode
_encode = msgspec.json.Encoder().encode


def stamp(method: str, result: Payload, *, server_info: Any, ttl_ms: int) -> Payload:
    """`result` of `method` as a modern client must get it.

    A `resultType`, `ttlMs` or server name that is there already stays. The cache scope of cacheable results
    is always private: what we serve depends on who asks. Raises `RpcError` (-32603) for a result that
    is no object.
    """
    raw = result.raw.lstrip()
    try:
        known = _decode_known(raw)
    except (msgspec.DecodeError, RecursionError) as e:
        raise RpcError(INTERNAL_ERROR, f"{method} gave a result that is no object") from e
    added: dict[str, Any] = {}
    replaced: dict[str, Any] = {}
    kind = b'"complete"' if known.type is msgspec.UNSET else bytes(known.type)
    if known.type is msgspec.UNSET:
        added["resultType"] = "complete"
    if method in CACHEABLE and kind == b'"complete"':
        if known.ttl is msgspec.UNSET:
            added["ttlMs"] = ttl_ms
        if known.scope is msgspec.UNSET:
            added["cacheScope"] = "private"
        elif bytes(known.scope) != b'"private"':
            replaced["cacheScope"] = "private"
    if known.meta is msgspec.UNSET:
        added["_meta"] = {META_SERVER_INFO: server_info}
    else:
        meta = msgspec.json.decode(known.meta)
        if isinstance(meta, dict) and meta.get(META_SERVER_INFO) is None:  # pyright: ignore[reportUnknownMemberType]
            replaced["_meta"] = {**meta, META_SERVER_INFO: server_info}
        elif meta is None:
            replaced["_meta"] = {META_SERVER_INFO: server_info}
    if replaced:
        return Payload.encoded(_encode({**result.members(), **replaced, **added}))
    if not added:
        return result
    head = _encode(added)
    rest = raw[1:].lstrip()
    return Payload.encoded(head[:-1] + (rest if rest == b"}" else b"," + rest))
