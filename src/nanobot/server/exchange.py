"""One HTTP request and its answer, over plain ASGI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import anyio
import msgspec
from starlette.types import Message, Receive, Scope, Send

from nanobot.server.problems import BadRequest, Header, describe_error

T = TypeVar("T")

BODY_TIMEOUT_S: Final = 60.0
"""How long a client may take to send one body."""

PRIVATE_JSON: Final[tuple[Header, ...]] = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

_CLOSE: Final[Header] = (b"connection", b"close")  # the rest of an unread body would be taken for a request
_encoder = msgspec.json.Encoder()


class ClientGone(Exception):
    """The client closed the connection before its request was complete; nobody waits for an answer."""


class Exchange:
    """A request being answered. Exactly one of the answering methods is used, once."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self._send = send
        self.is_answered = False
        """Whether an answer was begun: then there is no way back to an error status."""

    @property
    def method(self) -> str:
        return self.scope["method"]

    @property
    def account(self) -> str:
        """Who asks; "" while there is no authentication."""
        return self.scope["state"]["account"]

    @property
    def values(self) -> Mapping[str, str]:
        """What the request brings along for MCP servers (`Caller.values`)."""
        return self.scope["state"].get("values") or {}

    @cached_property
    def query(self) -> Mapping[str, str]:
        """The query string, the last value of each name."""
        raw: bytes = self.scope["query_string"]
        return dict(parse_qsl(raw.decode("latin-1"), keep_blank_values=True)) if raw else {}

    def header(self, name: bytes) -> bytes:
        """The first header `name` (lower case); b"" if there is none."""
        headers: Sequence[Header] = self.scope["headers"]
        for key, value in headers:
            if key == name:
                return value
        return b""

    async def read(self, limit: int) -> bytes:
        """The whole body. Raises `BadRequest` (413 beyond `limit` bytes, 408 if slow) and `ClientGone`."""
        declared = self.header(b"content-length")
        if declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        body, more = bytearray(), True
        try:
            with anyio.fail_after(BODY_TIMEOUT_S):
                while more:
                    message = await self.receive()
                    if message["type"] != "http.request":
                        raise ClientGone
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > limit:
                        raise _too_large(limit)
        except TimeoutError as e:
            late = f"The request body did not arrive within {BODY_TIMEOUT_S:g} s."
            raise BadRequest(408, "body_timeout", late, headers=[_CLOSE]) from e
        return bytes(body)

    async def read_json(self, decoder: msgspec.json.Decoder[T], limit: int) -> T:
        """The body, checked by `decoder`.

        Raises `BadRequest`: 415 for another content type (which also keeps a form on a foreign page from
        posting here), 400 for text that is no JSON, 422 naming the field that is missing or wrong.
        """
        kind = self.header(b"content-type").split(b";", 1)[0].strip().lower()
        if kind != b"application/json":
            message = f"Send JSON with `Content-Type: application/json`, not {kind.decode('latin-1')!r}."
            raise BadRequest(415, "content_type", message, headers=[_CLOSE])
        body = await self.read(limit)
        try:
            return decoder.decode(body)
        except msgspec.ValidationError as e:
            raise BadRequest(422, "invalid_field", f"{e}.", field=_field_of(str(e))) from e
        except (msgspec.DecodeError, RecursionError) as e:
            raise BadRequest(400, "invalid_json", f"The body is not JSON: {e}.") from e

    async def send(self, message: Message) -> None:
        """Hand an ASGI message on, for answers that are no JSON."""
        self.is_answered = True
        await self._send(message)

    async def answer(self, status: int, headers: Sequence[Header], body: bytes = b"") -> None:
        """Answer with exactly these headers, `content-length` added where there is a body."""
        if body:
            headers = [*headers, (b"content-length", b"%d" % len(body))]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def answer_json(self, value: Any, *, status: int = 200, headers: Sequence[Header] = ()) -> None:
        """Answer with `value` as JSON, for this client alone and not to be kept."""
        await self.answer(status, [*PRIVATE_JSON, *headers], _encoder.encode(value))

    async def answer_error(self, error: Exception) -> None:
        """Answer `{"error": {"code", "message"[, "field"]}}`."""
        status, body, headers = describe_error(error)
        await self.answer_json({"error": body}, status=status, headers=headers)


def _too_large(limit: int) -> BadRequest:
    return BadRequest(413, "too_large", f"The body is longer than {limit} bytes.", headers=[_CLOSE])


def _field_of(reason: str) -> str:
    """The field in a validation message: `$.a.b` at its end, or the name of a missing or unknown one."""
    _, _, place = reason.partition(" - at `$.")
    if place:
        return place.rstrip("`")
    _, _, name = reason.partition("field `")
    return name.partition("`")[0]
