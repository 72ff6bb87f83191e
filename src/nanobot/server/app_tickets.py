"""The addresses of MCP Apps: sealed, so that one cannot be guessed, read or used by somebody else.

A ticket holds all there is to know of an app. Nothing is kept in memory, so it is good in every process of
the home and after a restart, until it expires or its thread is deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

from nanobot.errors import NotFound
from nanobot.store.sealing import CannotOpen, Sealer

LIFETIME_S: Final = 12 * 60 * 60.0

_TO_PATH: Final = bytes.maketrans(b"+/:", b"-_.")
_FROM_PATH: Final = bytes.maketrans(b"-_.", b"+/:")


class App(msgspec.Struct, frozen=True, array_like=True):
    """One app: the user interface `uri` of `server`, shown for a call that `agent` made in a thread."""

    thread: str
    agent: str
    server: str
    uri: str


class _Ticket(msgspec.Struct, array_like=True):
    expires: float
    app: App


_decode = msgspec.json.Decoder(_Ticket).decode


class Tickets:
    """Seals and opens with `sealer`. A ticket is opened only by the account it was made for."""

    def __init__(self, sealer: Sealer, *, now: Callable[[], float] = time.time) -> None:
        self._sealer = sealer
        self._now = now

    def seal(self, app: App, account: str) -> str:
        """Text that can stand in a path."""
        body = msgspec.json.encode(_Ticket(self._now() + LIFETIME_S, app))
        return self._sealer.seal(body, _bound(account)).translate(_TO_PATH).decode()

    def open(self, ticket: str, account: str) -> App:
        """What was sealed. Raises `NotFound`, always in the same words."""
        try:
            sealed = ticket.encode("ascii").translate(_FROM_PATH)
            found = _decode(self._sealer.open(sealed, _bound(account)))
            if found.expires > self._now():
                return found.app
        except (CannotOpen, ValueError, msgspec.DecodeError):
            pass
        raise NotFound("There is no such app (any more); open its conversation anew.")


def _bound(account: str) -> bytes:
    return b"mcp app\0" + account.encode()
