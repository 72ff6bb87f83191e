"""What of a request may stand in the audit log: headers, keys and bodies without their secrets."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final, Literal, cast

import msgspec

from nanobot.config.redact import MASK, redact_text
from nanobot.hub.audit.record import Body, Headers
from nanobot.upstream.secrecy import Secrecy
from nanobot.wire.rpc import Payload

Bodies = Literal["full", "redacted", "none"]

MAX_BODY: Final = 1024 * 1024
"""Longer bodies are told by their length and digest alone."""
MAX_ERROR: Final = 2000
HIDDEN: Final = ("[REDACTED]",)

_SECRET_HEADERS: Final = frozenset({"authorization", "cookie", "set-cookie", "proxy-authorization"})
_REPEATED: Final = "mcp-param-"
_SECRET_PREFIXES: Final = ("x-nanobot-env-", _REPEATED)
_SECRET_HEADER_WORD: Final = re.compile(r"token|secret|key|password")
_SECRET_KEY: Final = re.compile(
    r"(?<!progress)token|api[-_]?key|secret|passw|authorization|credential|cookie", re.IGNORECASE
)
_HAS_BEARER: Final = re.compile(r"bearer\s+(\S+)\s*", re.IGNORECASE)
_JWT_PARTS: Final = 3
_decode = msgspec.json.decode


def shown_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Headers by their usual spelling, secrets hidden."""
    shown: dict[str, list[str]] = defaultdict(list)
    for raw_name, value in headers:
        name = raw_name.decode("latin-1").lower()
        usual = "-".join(part.capitalize() for part in name.split("-"))
        if _is_secret_header(name):
            shown[usual] = list(HIDDEN)
        else:
            shown[usual].append(redact_text(value.decode("latin-1")))
    return shown


def shown_key(authorization: str) -> str:
    """The recognisable beginning of an API key in a header `Authorization`; "" for a JWT or anything else."""
    bearer = _HAS_BEARER.fullmatch(authorization)
    if bearer is None:
        return ""
    key = bearer[1]
    if key.count(".") == _JWT_PARTS - 1 and key.startswith("ey"):
        return ""
    return key_beginning(key)


def key_beginning(key: str) -> str:
    """As much of `key` as tells it from others: through its third hyphen, else half or 12 characters."""
    if len(key) < 2:
        return ""
    parts = key.split("-", 3)
    prefix = key[: len(key) - len(parts[3])] if len(parts) == 4 else ""
    if len(key) < 20:
        half = key[: len(key) // 2]
        return prefix if len(prefix) > len(half) else half
    return prefix if len(prefix) >= 12 else key[:12]


def secrets_in(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """The values of headers that are not shown, but for those that repeat what stands in the body."""
    return [
        value.decode("latin-1")
        for raw_name, value in headers
        if _is_secret_header(name := raw_name.decode("latin-1").lower()) and not name.startswith(_REPEATED)
    ]


def shown_body(body: bytes, bodies: Bodies, secrecy: Secrecy) -> Body:
    """A JSON text as it may be shown. What is no JSON becomes a text, so that the entry itself stays JSON.

    What a header of the same request keeps secret is hidden whatever `bodies` says.
    """
    if bodies == "none" or not body:
        return msgspec.UNSET
    if len(body) > MAX_BODY:
        return truncated(len(body), hashlib.sha256(body).hexdigest())
    try:
        body.decode()
        value = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if bodies == "full":
            return secrecy.hide(body.decode("utf-8", "replace"))
        return {"invalid": True, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    shown = secrecy.hide_in_json(Payload(body, value))
    return msgspec.Raw(shown.raw) if bodies == "full" else masked(shown.value)


def truncated(size: int, sha256: str) -> Body:
    """What stands for a body that is too long."""
    return {"truncated": True, "bytes": size, "sha256": sha256}


def masked(value: Any) -> Any:
    """`value` with whatever stands under a name that sounds secret masked, and secrets in URLs."""
    match value:
        case str():
            return redact_text(value)
        case list():
            return [masked(item) for item in cast("list[Any]", value)]
        case dict():
            below = cast("dict[str, Any]", value)
            return {k: MASK if v and _SECRET_KEY.search(k) else masked(v) for k, v in below.items()}
        case _:
            return value


def _is_secret_header(name: str) -> bool:
    return (
        name in _SECRET_HEADERS
        or name.startswith(_SECRET_PREFIXES)
        or _SECRET_HEADER_WORD.search(name) is not None
    )
