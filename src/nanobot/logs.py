"""Logging: the standard library in every module, set up once at the entry of a command."""

from __future__ import annotations

import logging
import sys
from typing import Final

OVERHEARD: Final = "nanobot.overheard"
"""Name of the logger for messages of others, which are told whatever the level of the rest is."""

_FIELDS_OF_EVERY_RECORD = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class _Lines(logging.Formatter):
    """`time level logger: sentence key=value …`, fields from `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        fields = {k: v for k, v in record.__dict__.items() if k not in _FIELDS_OF_EVERY_RECORD}
        if not fields:
            return line
        head, newline, rest = line.partition("\n")
        return head + "".join(f" {k}={v!r}" for k, v in fields.items()) + newline + rest


def set_up(*, level: str) -> None:
    """Send log records from `level` on to stderr (stdout may be a protocol). Called by a command."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger(OVERHEARD).setLevel(logging.DEBUG)
