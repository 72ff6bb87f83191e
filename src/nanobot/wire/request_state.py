"""What a modern client carries from one round of a request to the next, sealed so that it cannot be misused.

A `requestState` of ours is bound to the account, the method and the target (tool, prompt or URI) it was made
for, and expires. Anything else that is presented as one is refused alike: changed, foreign, stale or made up.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from nanobot.wire.rpc import INVALID_PARAMS, RpcError

LIFETIME_S: Final = 15 * 60.0

Kind = Literal["parked", "relayed"]
"""`parked`: the call waits for the answers; `text` says where. `relayed`: `text` is the state of the server
behind us."""


@dataclass(frozen=True, slots=True)
class Binding:
    """For whom and for what a state was made."""

    account: str
    method: str
    target: str


class _Sealed(msgspec.Struct, array_like=True):
    kind: Kind
    expires: float
    text: str | None


class RequestStates:
    """Seals and opens with `key`; processes that share it open each other's states."""

    def __init__(self, key: bytes, *, now: Callable[[], float] = time.time) -> None:
        self._key = key
        self._now = now

    def seal(self, kind: Kind, text: str | None, binding: Binding) -> str:
        body = msgspec.json.encode(_Sealed(kind, self._now() + LIFETIME_S, text))
        return _encode(body) + "." + _encode(self._mark(body, binding))

    def open(self, sealed: object, binding: Binding) -> tuple[Kind, str | None]:
        """Kind and text as they were sealed. Raises `RpcError` (-32602), always with the same words."""
        try:
            body, mark = (urlsafe_b64decode(part) for part in str(sealed).split("."))
            is_canonical = (
                f"{_encode(body)}.{_encode(mark)}" == sealed
            )  # base64 can spell bytes in several ways
            if is_canonical and hmac.compare_digest(mark, self._mark(body, binding)):
                state = msgspec.json.decode(body, type=_Sealed)
                if state.expires > self._now():
                    return state.kind, state.text
        except (ValueError, msgspec.DecodeError):
            pass  # told like every other state that is not ours
        raise RpcError(INVALID_PARAMS, "unknown or expired requestState; send the request anew without it")

    def _mark(self, body: bytes, binding: Binding) -> bytes:
        bound = msgspec.json.encode((binding.account, binding.method, binding.target))
        return hmac.digest(self._key, hashlib.sha256(bound).digest() + body, "sha256")


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).decode()
