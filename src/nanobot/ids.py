"""Identifiers: unguessable, short, made in one place."""

from __future__ import annotations

import secrets
import uuid

_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


def new_id(prefix: str, length: int = 16) -> str:
    """`<prefix>_` and `length` random characters of `[a-z0-9]`."""
    raw = secrets.token_bytes(length)
    return prefix + "_" + "".join(_ALPHABET[b % 36] for b in raw)


def new_uuid() -> str:
    """A random UUID v4, lower case with hyphens: the id of threads and MCP sessions."""
    return str(uuid.uuid4())
