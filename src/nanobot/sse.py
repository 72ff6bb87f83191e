"""Server-sent events, both directions: a linear-time parser with a size limit, and a formatter."""

from __future__ import annotations

import msgspec

from nanobot.errors import NanobotError

MAX_EVENT = 64 * 1024 * 1024
MAX_DIGITS = 18


class SseTooLong(NanobotError):
    """A peer sent an event over the limit; the stream cannot go on."""

    code = "sse.too_long"


class SseEvent(msgspec.Struct, frozen=True, gc=False):  # a struct: one is made for every piece of an answer
    """One event. A keep-alive comment line is an event with `comment` set and no data. `retry` is in ms."""

    data: bytes
    event: str = "message"
    id: str | None = None
    retry: int | None = None
    comment: bool = False


COMMENT = SseEvent(b"", comment=True)
FAREWELL = b": the server is stopping\n\n"
"""The last that is sent on a stream which ends because we stop."""


class SseParser:
    """Bytes in, events out. Lines end in LF, CRLF or CR; the bytes may be cut anywhere."""

    __slots__ = (
        "_after_cr",
        "_data",
        "_event",
        "_held",
        "_id",
        "_limit",
        "_partial",
        "_partial_size",
        "_retry",
        "_seen",
    )

    def __init__(self, max_event_bytes: int = MAX_EVENT) -> None:
        self._limit = max_event_bytes
        self._partial: list[bytes] = []  # pieces of a line whose end has not arrived
        self._partial_size = 0
        self._after_cr = False
        self._reset()

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that `chunk` completes. Raises `SseTooLong`."""
        if self._after_cr and chunk.startswith(b"\n"):  # the LF of a CRLF that was cut in two
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r") if chunk else self._after_cr
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        if len(lines) == 1:
            self._keep(chunk)
            return []
        if self._partial:
            lines[0] = b"".join(self._partial) + lines[0]
            self._partial.clear()
            self._partial_size = 0
        rest = lines.pop()
        events: list[SseEvent] = []
        for line in lines:
            self._line(line, events)
        self._keep(rest)
        return events

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._partial.append(piece)
            self._partial_size += len(piece)
        if self._partial_size + self._held > self._limit:
            raise SseTooLong(f"A server sent an event of more than {self._limit} bytes.")

    def _line(self, line: bytes, events: list[SseEvent]) -> None:
        if not line:
            if self._seen:
                events.append(SseEvent(b"\n".join(self._data), self._event, self._id, self._retry))
            self._reset()
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"data":
                self._data.append(value)
                self._held += len(value) + 1  # an empty line costs memory too
                self._seen = True
            case b"":
                events.append(COMMENT)
            case b"event":
                self._event = value.decode("utf-8", "replace")
            case b"id":
                # A priming event is an id with no data: it counts, because it can be resumed from.
                self._id = value.decode("utf-8", "replace")
                self._seen = True
            case b"retry":
                self._retry = whole_number(value)
            case _:
                pass  # unknown fields are ignored

    def _reset(self) -> None:
        self._data: list[bytes] = []
        self._held = 0
        self._event = "message"
        self._id: str | None = None
        self._retry: int | None = None
        self._seen = False


def whole_number(text: str | bytes) -> int | None:
    """The number that a peer wrote in decimal digits; None for anything else, and for senselessly many.

    Python's own checks are wider than its conversion: there are digits, and lengths, that `int` refuses.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else None


def format_event(
    data: bytes, *, event: str | None = None, id: str | None = None, retry: int | None = None
) -> bytes:
    """One event as bytes. `data` may hold newlines; `event` and `id` may not."""
    head = b""
    if id is not None:
        head += b"id: " + id.encode() + b"\n"
    if event is not None:
        head += b"event: " + event.encode() + b"\n"
    if retry is not None:
        head += b"retry: %d\n" % retry
    if b"\n" in data:
        return head + b"".join(b"data: " + line + b"\n" for line in data.split(b"\n")) + b"\n"
    return head + b"data: " + data + b"\n\n"
