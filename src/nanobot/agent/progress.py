"""What a running tool call reports, as events of its turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from nanobot.agent.events import Body, ToolProgress, ToolStarted
from nanobot.errors import NanobotError
from nanobot.wire.call import Notify
from nanobot.wire.notifications import PROGRESS
from nanobot.wire.rpc import Payload

_SPACING_S: Final = 0.05
"""Progress of one tool is passed on at most this often; the first report at once."""


class CallProgress:
    """Turns what a tool or an agent reports while it works into `ToolProgress` events."""

    def __init__(self, call_id: str, emit: Callable[[Body], None], others: Notify | None = None) -> None:
        self._call_id = call_id
        self._emit = emit
        self._others = others  # who gets notifications that are no progress
        self._next = 0.0
        self._steps = 0

    def notify(self, method: str, params: Payload) -> None:
        """A `Notify` for the call."""
        if method != PROGRESS:
            if self._others is not None:
                self._others(method, params)
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _SPACING_S
        try:
            told = params.object()
        except NanobotError:
            return  # malformed progress of a server is ignored
        progress, total, message = told.get("progress"), told.get("total"), told.get("message")
        self._emit(
            ToolProgress(
                self._call_id,
                float(progress) if isinstance(progress, int | float) else 0.0,
                float(total) if isinstance(total, int | float) else None,
                str(message) if message is not None else "",
            )
        )

    def of_agent(self, body: Body) -> None:
        """What an agent that was asked is doing: the tools it uses."""
        if isinstance(body, ToolStarted):
            self._steps += 1
            self._emit(ToolProgress(self._call_id, float(self._steps), message=body.call.name))
