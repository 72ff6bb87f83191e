"""What hooks did on the way of one request, for the entry that is written at its end.

Between a request's beginning and the hooks lie parts that must not know of the log. A context variable leads
past them; it is set only while there is an audit log.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from nanobot.hub.audit.record import HookStatus
from nanobot.hub.audit.redaction import Bodies, shown_body
from nanobot.hub.hooks.record import HookRecord, log_record
from nanobot.upstream.secrecy import Secrecy

MAX_RECORDS: Final = 200
"""An agent's turn can make many calls; what hooks did in the first of them is kept."""

_trail: ContextVar[list[HookRecord] | None] = ContextVar("audit_trail", default=None)


@contextmanager
def following() -> Generator[list[HookRecord]]:
    """What hooks report inside the block, in order."""
    records: list[HookRecord] = []
    token = _trail.set(records)
    try:
        yield records
    finally:
        _trail.reset(token)


def note_hooks(record: HookRecord) -> None:
    """Take what hooks did into the log of the program, and into the entry of the request it belongs to."""
    log_record(record)
    records = _trail.get()
    if records is not None and len(records) < MAX_RECORDS:
        records.append(record)


def hook_fields(records: list[HookRecord], bodies: Bodies, secrecy: Secrecy) -> dict[str, Any]:
    """The fields of an entry that tell of hooks; none where there were none."""
    if not records:
        return {}
    sent = [one.final for one in records if one.direction == "request" and one.final is not None]
    answered = [one.original for one in records if one.direction == "response" and one.original is not None]
    fields: dict[str, Any] = {
        "webhookStatuses": [
            HookStatus(
                type=record.direction or "event",
                method=record.event,
                name=one.hook,
                tool=one.target,
                status=one.status,
                message=secrecy.hide(one.reason),
            )
            for record in records
            for one in record.statuses
        ]
    }
    if sent:
        fields["mutatedRequestBody"] = shown_body(sent[-1], bodies, secrecy)
    if answered:
        fields["originalResponseBody"] = shown_body(answered[0], bodies, secrecy)
    return fields
