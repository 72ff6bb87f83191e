"""The audit log as the rest of the program sees it: somewhere to put entries, and what is told of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from anyio.abc import TaskStatus

from nanobot.aio import task_group
from nanobot.errors import ConfigError, UsageError
from nanobot.http import Http
from nanobot.hub.audit.file import FileWriter
from nanobot.hub.audit.record import Entry
from nanobot.hub.audit.redaction import Bodies
from nanobot.hub.audit.sender import HttpSender, SenderSettings

FOLDER: Final = "audit"
"""Directory in the home for what waits for its endpoint."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """Where entries go and what they show. At least one of `send_url` and `file` is set."""

    send_url: str = ""
    token: str = field(default="", repr=False)
    file: Path | None = None
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    bodies: Bodies = "full"
    batch_size: int = 1000
    flush_s: float = 5.0


class Sink(Protocol):
    """Where encoded entries go. `put` never waits and never raises."""

    def put(self, entry: bytes) -> None: ...

    @property
    def backlog(self) -> int: ...
    @property
    def backlog_bytes(self) -> int: ...
    @property
    def dropped(self) -> int: ...

    async def run(self, *, task_status: TaskStatus[None] = ...) -> None: ...


class AuditLog:
    """Numbers entries and hands them to every sink. Made by `open_audit`."""

    def __init__(self, settings: AuditSettings, sinks: Sequence[Sink]) -> None:
        self.bodies: Bodies = settings.bodies
        self._metadata = settings.metadata
        self._sinks = sinks
        self._numbers = count(1)

    def record(self, **fields: Any) -> None:
        """Add an entry with these fields of `Entry`; time, number and metadata are added here."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        entry = Entry(createdAt=now, sequence=next(self._numbers), metadata=self._metadata, **fields)
        encoded = _encode(entry)
        if b"\n" in encoded:  # in a body that was written over several lines
            encoded = encoded.replace(b"\r", b" ").replace(b"\n", b" ")
        for sink in self._sinks:
            sink.put(encoded)

    @property
    def backlog(self) -> int:
        """Entries in memory that are still to be delivered."""
        return sum(sink.backlog for sink in self._sinks)

    @property
    def backlog_bytes(self) -> int:
        """Bytes that are still to be delivered, those on disk included."""
        return sum(sink.backlog_bytes for sink in self._sinks)

    @property
    def dropped(self) -> int:
        return sum(sink.dropped for sink in self._sinks)


@asynccontextmanager
async def open_audit(
    settings: AuditSettings | None, http: Http, home: Path
) -> AsyncGenerator[AuditLog | None]:
    """The log, delivering in the background; None without settings. Leaving delivers what is left.

    Raises `ConfigError` if the file cannot be written.
    """
    if settings is None:
        yield None
        return
    sinks: list[Sink] = []
    if settings.send_url:
        sender = SenderSettings(
            url=settings.send_url,
            token=settings.token,
            batch_size=settings.batch_size,
            flush_s=settings.flush_s,
        )
        sinks.append(HttpSender(sender, http, home / FOLDER))
    if settings.file is not None:
        sinks.append(FileWriter(settings.file))
    async with task_group() as owner:
        for sink in sinks:
            try:
                await owner.start(sink.run)
            except OSError as e:
                raise ConfigError(f"The audit log cannot be written: {e}.") from e
        try:
            yield AuditLog(settings, sinks)
        finally:
            owner.cancel_scope.cancel()


def read_metadata(pairs: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE` words as a mapping. Raises `UsageError`."""
    metadata: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UsageError(f"{pair!r} is no KEY=VALUE for --audit-log-metadata.")
        metadata[key] = value
    return metadata
