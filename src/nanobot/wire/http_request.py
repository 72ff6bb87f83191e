"""Reading a POST as the protocol wants it, and refusing everything else with a reason."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs

import anyio
import msgspec

from nanobot.wire.depth import check_depth
from nanobot.wire.envelope import VERSION_HEADER
from nanobot.wire.rpc import (
    INVALID_REQUEST,
    Id,
    Message,
    RpcError,
    decode,
    encode_error,
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

BODY_S: Final = 60.0
"""How long a body may take to arrive."""
LINGER_S: Final = 10.0
SILENCE_S: Final = 0.5
"""How long a body that is too large is read on, and how long while nothing comes: clients that write
everything before they read would see a broken connection instead of the refusal."""

JSON_TYPE: Final = (b"content-type", b"application/json")
_CLOSE: Final[Header] = (b"connection", b"close")


class Refusal(Exception):
    """An HTTP answer other than 200 and 202. `id` is that of the request, if it could be read."""

    def __init__(
        self, status: int, error: RpcError, *, id: Id | None = None, headers: tuple[Header, ...] = ()
    ):
        super().__init__(error.message)
        self.status = status
        self.error = error
        self.id = id
        self.headers = headers

    async def send(self, send: Send) -> None:
        body = encode_error(self.id, self.error)
        # Older clients of this endpoint look for the text under "http_error".
        body = body[:-1] + b',"http_error":' + msgspec.json.encode(self.error.message) + b"}"
        await send_json(send, self.status, body, self.headers)


class HttpRequest:
    """One HTTP request, its headers looked through once."""

    __slots__ = ("account", "headers", "reads", "receive", "scope", "send", "values", "version")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict[bytes, bytes](scope["headers"])
        self.scope = scope
        self.receive = receive
        self.send = send
        self.headers: Mapping[bytes, bytes] = headers
        self.reads = accepts(headers.get(b"accept"))
        self.version = headers.get(VERSION_HEADER)
        state: Mapping[str, Any] = scope.get("state") or {}
        self.account: str = state.get("account", "")
        self.values: Mapping[str, str] | None = state.get("values")


class Disconnected(Exception):
    """The client went away before its request was complete."""


class Accepts(NamedTuple):
    """What kinds of answer a client can read."""

    json: bool
    events: bool


@lru_cache(maxsize=256)
def accepts(header: bytes | None) -> Accepts:
    """An `Accept` header understood. A wildcard alone means JSON: it says nothing about event streams."""
    if not header:
        return Accepts(json=True, events=False)
    json = events = False
    for part in header.lower().split(b","):
        media, *parameters = (piece.strip() for piece in part.split(b";"))
        if any(p.replace(b" ", b"") in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000") for p in parameters):
            continue
        json = json or media in (b"application/json", b"application/*", b"*/*")
        events = events or media in (b"text/event-stream", b"text/*")
    return Accepts(json, events)


def check_content_type(headers: Mapping[bytes, bytes]) -> None:
    """Raises `Refusal` (415) unless the body is declared as JSON.

    A browser sends other types across origins without asking first; this one it does not.
    """
    kind = headers.get(b"content-type", b"")
    if kind != b"application/json" and kind.split(b";")[0].strip().lower() != b"application/json":
        raise Refusal(415, RpcError(INVALID_REQUEST, "Content-Type must be application/json"))


async def read_body(http: HttpRequest, limit: int) -> bytes:
    """The whole body. Raises `Refusal` as early as it is known to be over `limit` bytes (413) or too slow
    (408), and `Disconnected`."""
    declared = http.headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared) > limit:
        if b"expect" not in http.headers:  # else it waits for our word before it sends anything
            await _drain(http)
        raise _too_large(limit)
    event = await http.receive()
    body = _piece(event)
    if event.get("more_body", False):
        pieces, size = [body], len(body)
        with anyio.move_on_after(BODY_S) as in_time:
            while event.get("more_body", False) and size <= limit:
                event = await http.receive()
                pieces.append(_piece(event))
                size += len(pieces[-1])
        if in_time.cancelled_caught:
            raise Refusal(408, RpcError(INVALID_REQUEST, "the body came too slowly"), headers=(_CLOSE,))
        body = b"".join(pieces)
    if len(body) > limit:
        if event.get("more_body", False):
            await _drain(http)
        raise _too_large(limit)
    return body


def read_message(body: bytes) -> Message:
    """The JSON-RPC message in a body. Raises `Refusal` (400)."""
    try:
        message = decode(body)
        check_depth(body)
    except RpcError as error:
        raise Refusal(400, error) from error
    return message


def session_id(http: HttpRequest) -> str | None:
    """The session that a request names: by header, by a UUID in the path, or in the query of a GET."""
    headers, scope = http.headers, http.scope
    header = headers.get(b"mcp-session-id") or headers.get(b"x-nanobot-session-id")
    if header is not None:
        return header.decode("latin-1")
    if (named := _uuid_in(scope["path"])) is not None:
        return named
    if scope["method"] == "GET" and scope.get("query_string"):
        values = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=50).get("id")
        return values[0] if values else None
    return None


def session_names(http: HttpRequest) -> list[tuple[str, object]]:
    """The threads or sessions that a modern request names outside its body, each with the place of it."""
    named: list[tuple[str, object]] = []
    if (header := http.headers.get(b"x-nanobot-session-id")) is not None:
        named.append(("header x-nanobot-session-id", header.decode("latin-1")))
    if http.scope["path"] != "/mcp" and (in_path := _uuid_in(http.scope["path"])) is not None:
        named.append(("the path", in_path))
    return named


def target(http: HttpRequest) -> str:
    """Path and query of the address that a request was sent to."""
    query = http.scope.get("query_string")
    path: str = http.scope["path"]
    return f"{path}?{query.decode('latin-1')}" if query else path


def agent_header(http: HttpRequest) -> str:
    """The agent that a client wants for the conversation of its session, "" if it does not say."""
    return _words(http.headers.get(b"x-nanobot-default-agent"))


def title_header(http: HttpRequest) -> str:
    """What a client wants the conversation of its session to be called, "" if it does not say."""
    return _words(http.headers.get(b"x-nanobot-description"))


async def send_json(send: Send, status: int, body: bytes, headers: tuple[Header, ...] = ()) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [JSON_TYPE, length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def send_empty(send: Send, status: int, headers: tuple[Header, ...] = ()) -> None:
    start: list[Header] = [*headers] if status == 204 else [(b"content-length", b"0"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": b""})


async def _drain(http: HttpRequest) -> None:
    """Read what still comes, for a while."""
    last = anyio.current_time() + LINGER_S
    with anyio.move_on_after(SILENCE_S) as patience:
        while (await http.receive()).get("more_body", False):
            patience.deadline = min(anyio.current_time() + SILENCE_S, last)


def _piece(event: MutableMapping[str, Any]) -> bytes:
    if event["type"] == "http.disconnect":
        raise Disconnected
    return event.get("body", b"")


def _too_large(limit: int) -> Refusal:
    error = RpcError(INVALID_REQUEST, f"the body is larger than {limit} bytes (server.maxBodyBytes)")
    return Refusal(413, error, headers=(_CLOSE,))


def _uuid_in(path: str) -> str | None:
    """The first segment that is a UUID and not the id of an agent."""
    before = ""
    for segment in path.split("/"):
        if len(segment) == 36 and before != "agents" and _is_uuid(segment):
            return segment.lower()
        before = segment
    return None


def _words(header: bytes | None) -> str:
    """A header as one line of text of bounded length."""
    if not header:
        return ""
    line = " ".join(header.decode("utf-8", "replace").split())
    return "".join(letter for letter in line if letter.isprintable())[:200]


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
