"""What a JSON Web Token says of itself, for hints and labels. Nothing is verified, nothing depends on it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import msgspec

MAX_TOKEN: Final = 16 * 1024
"""A longer token is not looked into."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def header_of(token: str) -> Mapping[str, Any]:
    """The header; empty if it is no such token."""
    return _part(token, 0)


def claims_of(token: str) -> Mapping[str, Any]:
    """The claims; empty if it is no such token."""
    return _part(token, 1)


def _part(token: str, number: int) -> Mapping[str, Any]:
    parts = token.split(".") if len(token) <= MAX_TOKEN else []
    if len(parts) != 3:
        return {}
    text = parts[number]
    try:
        return _decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, msgspec.DecodeError, RecursionError):
        return {}
