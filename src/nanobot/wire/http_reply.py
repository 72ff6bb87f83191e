"""What an HTTP reply to an MCP message means: an answer, a stream of events, a refusal or a detour."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urljoin, urlsplit

import anyio

from nanobot.http import HttpAnswer, HttpError, HttpStream
from nanobot.sse import SseEvent, whole_number
from nanobot.wire.challenge import read_challenge
from nanobot.wire.client import ConnectionLost
from nanobot.wire.rpc import INTERNAL_ERROR, ErrorResponse, Payload, Response, RpcError, decode

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
REDIRECTS: Final = (301, 302, 303, 307, 308)
MAX_REDIRECTS: Final = 5

MAX_ANSWER: Final = 64 * 1024 * 1024
LONGEST_WAIT_S: Final = 10.0
"""A busy server that wants us to wait longer is taken for one that refuses."""
SHORTEST_RETRY_S: Final = 0.01
LONGEST_RETRY_S: Final = 60.0
END_OF_STREAM_S: Final = 0.01
"""How long after its answer an event stream may take to end."""


class SessionGone(Exception):
    """The server no longer knows our session; it has not run the request."""


class Later(Exception):
    """The server asked us to come back in `after_s` seconds; it has not run the request."""

    def __init__(self, after_s: float, status: int) -> None:
        super().__init__()
        self.after_s = after_s
        self.status = status


class Refused(ConnectionLost):
    """The server answered a status and nothing that MCP knows. The connection itself is well."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason, maybe_sent=status >= 500)
        self.status = status

    @property
    def is_for_caller(self) -> bool:
        """Whether it was for who asked: another token might be welcome."""
        return self.status in (401, 403)


class Unauthorized(Refused):
    """The server wants a token, or another than it got (HTTP status 401), with the `scopes` that it named."""

    def __init__(self, reason: str, scopes: Sequence[str] = ()) -> None:
        super().__init__(401, reason)
        self.scopes = tuple(scopes)


@dataclass(slots=True)
class Place:
    """How far an event stream has been read, so that it can be taken up again."""

    event_id: str | None = None
    retry_s: float | None = None
    """The pause that the server asked for before the stream is opened again."""
    events: int = 0
    tries: int = 0
    """How often it was taken up without a new event."""

    def note(self, event: SseEvent) -> None:
        if event.comment:
            return
        self.events += 1
        if event.id:
            self.event_id, self.tries = event.id, 0
        if event.retry is not None:
            self.retry_s = min(max(event.retry / 1000, SHORTEST_RETRY_S), LONGEST_RETRY_S)


def media_type(reply: HttpStream) -> str:
    """The content type without its parameters, in lower case."""
    return reply.headers.get("Content-Type", "").partition(";")[0].strip().lower()


async def result_in(reply: HttpStream, id: int) -> Payload:
    """The result in a JSON answer to the request `id`. Raises `RpcError`, `ConnectionLost`, `HttpError`."""
    try:
        message = decode(await _whole(reply), mend=True)
    except RpcError as e:
        raise RpcError(INTERNAL_ERROR, f"the server's answer is no message: {e.message}") from e
    match message:
        case Response(id=answered, result=result) if answered == id:
            return result
        case ErrorResponse(id=answered, error=error) if answered in (id, None):
            raise error
        case _:
            raise RpcError(INTERNAL_ERROR, "the server answered another request than the one it was sent")


async def refusal(reply: HttpStream, sent: Mapping[str, str]) -> Exception:
    """What a status that is neither 200 nor a redirect means for a request with the headers `sent`."""
    status = reply.status
    if status == 404 and "Mcp-Session-Id" in sent:
        return SessionGone()
    if status in (429, 503):
        wait = whole_number(reply.headers.get("Retry-After", ""))
        if wait is not None and wait <= LONGEST_WAIT_S:
            return Later(wait, status)
    if status == 401:
        scopes = read_challenge(status, reply.headers).scopes
        return Unauthorized("it answered HTTP status 401: it wants credentials", scopes)
    if status >= 400 and media_type(reply) == JSON:
        with suppress(RpcError):
            message = decode(await _whole(reply), mend=True)
            if isinstance(message, ErrorResponse):
                return message.error
    hints = {403: ": it forbids this", 202: " to a request"}
    return Refused(status, f"it answered HTTP status {status}{hints.get(status, '')}")


def redirected(url: str, reply: HttpStream | HttpAnswer) -> str:
    """Where a redirect leads. Raises `Refused` unless that is the same origin and the method is kept."""
    target = urljoin(url, reply.headers.get("Location", ""))
    if reply.status in (307, 308) and origin(url) == origin(target):
        return target
    where = urlsplit(target)
    address = f"{where.scheme}://{where.netloc.rpartition('@')[2]}{where.path}"
    raise Refused(reply.status, f"it redirects to {address}; use that address")


async def drain(chunks: AsyncIterator[bytes]) -> None:
    """Read a stream that has said what it had to say to its end, so that its connection can be used again."""
    with anyio.move_on_after(END_OF_STREAM_S), suppress(HttpError):
        async for _ in chunks:
            pass


async def _whole(reply: HttpStream) -> bytes:
    body = await reply.read(MAX_ANSWER + 1)
    if len(body) > MAX_ANSWER:
        raise ConnectionLost(f"its answer is longer than {MAX_ANSWER} bytes", maybe_sent=True)
    return body


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port of an address. Raises `ValueError` for what is none."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
