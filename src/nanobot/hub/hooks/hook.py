"""The seam to what runs when something happens, whatever kind of target it is."""

from __future__ import annotations

from typing import Any, Final, Protocol

from nanobot.errors import NanobotError
from nanobot.wire.call import Call
from nanobot.wire.rpc import Payload, RpcError

JsonObject = dict[str, Any]

REJECTED: Final = -32010
"""JSON-RPC code of a message that a hook did not let through."""


class HookFailed(NanobotError):
    """A hook gave no usable answer. The message says why, and holds nothing of what the hook was shown."""

    code = "hook.failed"


class HookRejected(RpcError):
    """A message was stopped by the hook `key`, at its target `target`; `reason` is for people.

    `is_decision`: the hook said no. Otherwise it failed to say anything.
    """

    code = "hook.rejected"

    def __init__(self, *, key: str, target: str, direction: str, reason: str, is_decision: bool) -> None:
        data = {"hook": key, "target": target, "direction": direction, "reason": reason}
        super().__init__(REJECTED, reason, Payload.of(data))
        self.reason = reason
        self.is_decision = is_decision


class Hook(Protocol):
    """One target; used by many tasks at once.

    `payload` belongs to the hook, which may change it. The answer is whatever JSON value the target gave,
    None if it has nothing to say. `call` is the company of what the hook does in turn: its `hooks` tell for
    which hooks it is done. Raises `HookFailed`, also when the target takes longer than it may.
    """

    async def run(self, event: str, payload: JsonObject, call: Call) -> Any: ...
