"""What hooks did to one message or event, for whoever keeps such records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from nanobot.wire.call import Call

log = logging.getLogger(__name__)

Status = Literal["ok", "mutated", "rejected", "failed", "skipped"]
"""skipped: it failed, and was optional."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookStatus:
    """One target's answer. `hook` is the key it stands under; `reason` is what it said, or why it failed."""

    hook: str
    target: str
    status: Status
    reason: str
    ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRecord:
    """All that hooks did to one message of a server, or to one event of an agent or session.

    `owner` is the server, `agent:<id>`, or "" for sessions. `name` is the tool, prompt or URI the message is
    about. `original` is the message as JSON before the first change and `final` what went on; both are None
    unless something was changed.
    """

    owner: str
    event: str
    direction: Literal["request", "response", ""]
    name: str
    call: Call
    statuses: tuple[HookStatus, ...]
    original: bytes | None = None
    final: bytes | None = None


Audit = Callable[[HookRecord], None]
"""Takes a record. Must not block or raise."""


def log_record(record: HookRecord) -> None:
    """The statuses into the log, never the messages."""
    for one in record.statuses:
        level = logging.DEBUG if one.status == "ok" else logging.INFO
        if one.status in ("failed", "skipped"):
            level = logging.WARNING
        fields = {"owner": record.owner, "event": record.event, "direction": record.direction}
        fields |= {"hook": one.hook, "target": one.target, "status": one.status, "ms": str(one.ms)}
        log.log(level, "hook", extra=fields | {"reason": one.reason})
