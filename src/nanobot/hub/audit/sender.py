"""Audit entries on their way to an HTTP endpoint: in batches, in order, kept on disk while it is away.

What waits is, from the oldest on: the batch under way, the spool on disk, the entries in memory. Memory goes
to the spool when there is too much of it, and every second while the endpoint is away, so that little is lost
if the process is killed then.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import anyio
from anyio import to_thread
from anyio.abc import TaskStatus

from nanobot.aio import task_group
from nanobot.http import Http, HttpAnswer, HttpError
from nanobot.hub.audit.spool import Spool

log = logging.getLogger(__name__)

REQUEST_S: Final = 10.0
BACKOFF_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
MAX_ENTRIES: Final = 50_000
MAX_BYTES: Final = 64 * 1024 * 1024
"""What may wait in memory; half of it is written to disk at once."""
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
"""A batch ends when it is longer, whatever its number of entries."""
SPILL_S: Final = 1.0
FAREWELL_S: Final = 5.0
"""Time for sending what is left at the end; one request under way may take longer."""
MAX_ANSWER: Final = 1024 * 1024
MAX_REJECTED_BYTES: Final = 64 * 1024 * 1024

_NOT_THE_CONTENT: Final = frozenset({401, 403, 404, 405, 407, 408, 421, 425, 426, 429})
"""Refusals of the sender or of the moment. Splitting a batch would not help; waiting, or a person, may."""

Reply = Literal["taken", "content", "later"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderSettings:
    url: str
    token: str = ""
    batch_size: int = 1000
    flush_s: float = 5.0
    backoff_s: Sequence[float] = BACKOFF_S
    max_entries: int = MAX_ENTRIES
    max_bytes: int = MAX_BYTES


class HttpSender:
    """Takes entries at any time (`put`), delivers them while `run` runs, and once more when that ends.

    `folder` holds `spool.jsonl` (not yet delivered; also taken up by the next run) and `rejected.jsonl` (what
    the endpoint will not have).
    """

    def __init__(self, settings: SenderSettings, http: Http, folder: Path) -> None:
        self._settings = settings
        self._http = http
        self._spool = Spool(folder / "spool.jsonl")
        self._rejected = Spool(folder / "rejected.jsonl", max_bytes=MAX_REJECTED_BYTES)
        self._disk = anyio.Lock()  # held while a file is written: one at a time, in order
        self._memory: deque[bytes] = deque()
        self._memory_bytes = 0
        self._pieces: list[list[bytes]] = []  # the batch under way, in the pieces it had to be cut into
        self._is_from_spool = False
        self._is_away = False
        self._is_closed = False
        self._has_batch = anyio.Event()
        self._pressure = anyio.Event()
        self._dropped = 0

    def put(self, entry: bytes) -> None:
        """Add an encoded entry. Never waits; what finds no room is counted and lost."""
        if self._is_closed:
            return
        settings = self._settings
        if len(self._memory) >= settings.max_entries or self._memory_bytes >= settings.max_bytes:
            self._drop(1)
            return
        self._memory.append(entry)
        self._memory_bytes += len(entry)
        if len(self._memory) >= settings.batch_size:
            self._has_batch.set()
        if len(self._memory) * 2 >= settings.max_entries or self._memory_bytes * 2 >= settings.max_bytes:
            self._pressure.set()

    @property
    def backlog(self) -> int:
        """Entries in memory that wait; those on disk are told by `backlog_bytes`."""
        return len(self._memory) + sum(map(len, self._pieces))

    @property
    def backlog_bytes(self) -> int:
        return self._memory_bytes + self._spool.waiting_bytes

    @property
    def dropped(self) -> int:
        return self._dropped

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Deliver until cancelled; then once more, for at most `FAREWELL_S`, and keep the rest on disk."""
        task_status.started()
        try:
            async with task_group() as group:
                group.start_soon(self._spill)
                await self._deliver()
        finally:
            self._is_closed = True
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(FAREWELL_S):
                    while await self._next_batch() and await self._send_batch() is None:
                        pass
                await self._keep_rest()

    # Delivering

    async def _deliver(self) -> None:
        failures = 0
        while True:
            with anyio.move_on_after(self._settings.flush_s):
                await self._has_batch.wait()
            self._has_batch = anyio.Event()
            while await self._next_batch():
                pause_s = await self._send_batch()
                if pause_s is None:
                    if self._is_away:
                        log.info("audit endpoint is back")
                    self._is_away, failures = False, 0
                    if len(self._memory) < self._settings.batch_size and not self._spool.waiting_bytes:
                        break  # the rest has time until the next flush
                    continue
                self._is_away = True
                self._pressure.set()
                backoff_s = self._settings.backoff_s
                await anyio.sleep(max(pause_s, backoff_s[min(failures, len(backoff_s) - 1)]))
                failures += 1

    async def _next_batch(self) -> bool:
        """Have a batch under way if there is anything to send."""
        size = self._settings.batch_size
        while not self._pieces and self._spool.waiting_bytes:
            async with self._disk:
                try:
                    batch = await to_thread.run_sync(self._spool.read, size, MAX_BATCH_BYTES)
                    if batch:
                        self._pieces, self._is_from_spool = [batch], True
                    else:
                        await to_thread.run_sync(self._spool.delivered)
                except OSError as e:
                    log.warning("audit entries on disk cannot be read", extra={"reason": str(e)})
                    return False
        if not self._pieces and self._memory:
            batch: list[bytes] = []
            taken = 0
            while self._memory and len(batch) < size and taken < MAX_BATCH_BYTES:
                batch.append(self._memory.popleft())
                taken += len(batch[-1])
            self._memory_bytes -= taken
            self._pieces, self._is_from_spool = [batch], False
        return bool(self._pieces)

    async def _send_batch(self) -> float | None:
        """Send what is under way. None: it is dealt with; else the least seconds to wait before going on."""
        while self._pieces:
            piece = self._pieces[0]
            reply, pause_s = await self._post(piece)
            match reply:
                case "later":
                    return pause_s
                case "content" if len(piece) > 1:
                    half = len(piece) // 2
                    self._pieces[:1] = [piece[:half], piece[half:]]
                case "content":
                    await self._set_aside(piece)
                    del self._pieces[0]
                case "taken":
                    del self._pieces[0]
        if self._is_from_spool:
            self._is_from_spool = False
            with anyio.CancelScope(shield=True):  # what was delivered must not be sent again at the end
                async with self._disk:
                    try:
                        await to_thread.run_sync(self._spool.delivered)
                    except OSError as e:
                        log.warning("delivered audit entries stay on disk", extra={"reason": str(e)})
        return None

    async def _post(self, entries: Sequence[bytes]) -> tuple[Reply, float]:
        body = b"[" + b",".join(entries) + b"]"
        headers = {
            "Content-Type": "application/json",
            # The same batch has the same id however often it is sent: an endpoint can leave out what it has.
            "X-Nanobot-Batch-Id": hashlib.sha256(body).hexdigest()[:32],
        }
        if self._settings.token:
            headers["Authorization"] = f"Bearer {self._settings.token}"
        answer: HttpAnswer | None = None
        try:
            # Shielded (and bounded), so that the end of the program does not make this batch be sent twice.
            with anyio.CancelScope(shield=True):
                answer = await self._http.request(
                    "POST",
                    self._settings.url,
                    headers=headers,
                    body=body,
                    timeout_s=REQUEST_S,
                    max_bytes=MAX_ANSWER,
                )
        except HttpError as e:
            if e.kind == "too_large":
                return "taken", 0.0  # it said more than we read, after it had accepted
            self._complain(str(e))
            return "later", 0.0
        assert answer is not None  # nothing cancels a shielded scope
        if 200 <= answer.status < 300:
            return "taken", 0.0
        if 400 <= answer.status < 500 and answer.status not in _NOT_THE_CONTENT:
            return "content", 0.0
        self._complain(f"it answered HTTP status {answer.status}")
        wait = answer.headers.get("Retry-After", "")
        return "later", min(float(wait), self._settings.backoff_s[-1]) if wait.isdigit() else 0.0

    def _complain(self, reason: str) -> None:
        if not self._is_away:
            log.warning("audit endpoint is away; entries are kept on disk", extra={"reason": reason})

    async def _set_aside(self, entries: Sequence[bytes]) -> None:
        log.warning("the audit endpoint refused an entry; it was set aside", extra={"file": "rejected.jsonl"})
        async with self._disk:
            try:
                self._drop(await to_thread.run_sync(self._rejected.append, entries))
            except OSError as e:
                log.warning("a refused audit entry is lost", extra={"reason": str(e)})
                self._drop(len(entries))

    # Keeping

    async def _spill(self) -> None:
        while True:
            with anyio.move_on_after(SPILL_S if self._is_away else math.inf):
                await self._pressure.wait()
            self._pressure = anyio.Event()
            await self._empty_memory()

    async def _empty_memory(self) -> None:
        """Move what is in memory behind what is on disk."""
        async with self._disk:
            entries = list(self._memory)
            if not entries:
                return
            try:
                # Shielded: an entry must not be both in memory and on disk.
                with anyio.CancelScope(shield=True):
                    self._drop(await to_thread.run_sync(self._spool.append, entries))
                    for _ in entries:
                        self._memory_bytes -= len(self._memory.popleft())
            except OSError as e:  # they stay in memory while there is room
                log.warning("audit entries cannot be kept on disk", extra={"reason": str(e)})

    async def _keep_rest(self) -> None:
        await self._empty_memory()
        rest = [entry for piece in self._pieces for entry in piece]
        if rest and not self._is_from_spool:
            try:
                await to_thread.run_sync(self._spool.put_before, rest)
            except OSError as e:
                log.warning("audit entries are lost", extra={"reason": str(e), "entries": len(rest)})
                return
        if waiting := self._spool.waiting_bytes:
            log.warning("audit entries wait on disk for the next run", extra={"bytes": waiting})

    def _drop(self, count: int) -> None:
        if count and not self._dropped:
            log.warning("no room for audit entries; some are lost")
        self._dropped += count
