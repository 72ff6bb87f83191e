"""Asking a server what login it wants, without being refused in the middle of something."""

from __future__ import annotations

from typing import Final

import msgspec

from nanobot.http import Http, HttpError
from nanobot.upstream.oauth.failures import AuthorizationFailed
from nanobot.wire.challenge import Challenge, read_challenge
from nanobot.wire.versions import LATEST_LEGACY

PROBE_S: Final = 15.0

_HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": LATEST_LEGACY,
        "capabilities": {},
        "clientInfo": {"name": "nanobot", "version": "0"},
    },
}


async def find_challenge(http: Http, url: str) -> Challenge | None:
    """What the server at `url` asks of somebody without a token; None: it lets them in.

    Raises `AuthorizationFailed` if it cannot be reached.
    """
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    try:
        async with http.stream(
            "POST", url, headers=headers, body=msgspec.json.encode(_HELLO), idle_s=PROBE_S
        ) as reply:
            return read_challenge(401, reply.headers) if reply.status == 401 else None
    except HttpError as e:
        raise AuthorizationFailed(f"the server cannot be asked: {e}") from e
