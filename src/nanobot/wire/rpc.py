"""JSON-RPC as MCP uses it: envelopes whose payload stays undecoded until somebody needs it.

`decode` reads one message from bytes, the `encode_*` functions write one. A `Payload` is a JSON value that
is held encoded, decoded or both, so a relayed message is never decoded and an in-process one never encoded.
"""

from __future__ import annotations

from typing import Any, Final, TypeGuard

import msgspec

from nanobot.errors import NanobotError
from nanobot.wire import mending

Id = int | str

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
BUSY: Final = -32000
TIMEOUT: Final = -32001
RESOURCE_NOT_FOUND: Final = -32002  # legacy era only; the modern era says INVALID_PARAMS
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
CANCELLED: Final = -32800


class RpcError(NanobotError):
    """A JSON-RPC error: `rpc_code`, a message, and `data` (any JSON value, undecoded if it was relayed)."""

    code = "rpc"

    def __init__(self, rpc_code: int, message: str, data: Payload | None = None) -> None:
        super().__init__(message)
        self.rpc_code = rpc_code
        self.message = message
        self.data = data

    def body(self) -> dict[str, Any]:
        """The member `error` of an answer: `{code, message, data}`, the data as it was encoded."""
        body: dict[str, Any] = {"code": self.rpc_code, "message": self.message}
        if self.data is not None:
            body["data"] = msgspec.Raw(self.data.raw)
        return body


class Payload:
    """One JSON value. Holds its encoded or decoded form and makes the other once, when first asked.

    Treat `value` as read-only: the encoded form may already be somewhere else.
    """

    __slots__ = ("_raw", "_value")

    def __init__(self, raw: bytes | None, value: Any = msgspec.UNSET) -> None:
        self._raw = raw
        self._value = value

    @staticmethod
    def of(value: Any) -> Payload:
        """From a decoded value."""
        return Payload(None, value)

    @staticmethod
    def encoded(raw: bytes | bytearray | memoryview | msgspec.Raw) -> Payload:
        """From UTF-8 JSON text, trusted to be well formed."""
        return Payload(bytes(raw))

    @property
    def raw(self) -> bytes:
        """The value as compact UTF-8 JSON (or as it was received)."""
        if self._raw is None:
            self._raw = _encoder.encode(self._value)
        return self._raw

    @property
    def value(self) -> Any:
        """The value decoded. Raises `RpcError` (-32700) if the text is no JSON."""
        if self._value is msgspec.UNSET:
            try:
                self._value = msgspec.json.decode(self._raw or b"null")
            except (msgspec.DecodeError, RecursionError) as e:
                raise RpcError(PARSE_ERROR, f"not JSON: {e}") from e
        return self._value

    def object(self) -> dict[str, Any]:
        """The value as an object; `{}` for an absent or null one. Raises `RpcError` (-32602) otherwise."""
        value = self.value
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise RpcError(INVALID_PARAMS, f"expected an object, got {type(value).__name__}")
        return value  # pyright: ignore[reportUnknownVariableType]

    def members(self) -> dict[str, msgspec.Raw]:
        """The members of an object, each still encoded; `{}` for an absent or null value.

        This is how relays change one field and keep every other byte. Raises `RpcError` (-32602)
        if the value is no object.
        """
        raw = self.raw
        if raw == b"null":
            return {}
        try:
            return _members.decode(raw)
        except (msgspec.DecodeError, RecursionError) as e:
            raise RpcError(INVALID_PARAMS, f"expected an object: {e}") from e

    def __repr__(self) -> str:
        return f"Payload({len(self._raw)} bytes)" if self._raw is not None else "Payload(decoded)"


EMPTY: Final = Payload(b"{}", {})
"""The empty object. Shared: do not change its value."""


class Request(msgspec.Struct, frozen=True):
    """A call that wants an answer."""

    id: Id
    method: str
    params: Payload


class Notification(msgspec.Struct, frozen=True):
    """A message that wants no answer."""

    method: str
    params: Payload


class Response(msgspec.Struct, frozen=True):
    """A successful answer."""

    id: Id
    result: Payload


class ErrorResponse(msgspec.Struct, frozen=True):
    """A refusal. `id` is None when the request's id could not be read."""

    id: Id | None
    error: RpcError


Message = Request | Notification | Response | ErrorResponse


class _Error(msgspec.Struct):
    code: int = INTERNAL_ERROR
    message: str = ""
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Envelope(msgspec.Struct):
    jsonrpc: str = ""
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: _Error | msgspec.UnsetType = msgspec.UNSET


_encoder = msgspec.json.Encoder()
_envelope = msgspec.json.Decoder(_Envelope)
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_id = msgspec.json.Decoder(int | str)


def decode(data: bytes, *, mend: bool = False) -> Message:
    """One message from its JSON text. `mend`: read text that is nearly JSON too, see `mending`.

    Raises `RpcError`: -32700 for text that is no JSON (or nested too deeply), -32600 for a batch, a scalar,
    or an object that is no JSON-RPC 2.0 message. An id is a string or an integer; anything else is -32600.
    """
    try:
        envelope = _read_envelope(data)
    except RpcError as unreadable:
        if unreadable.rpc_code != PARSE_ERROR or len(data) > mending.MAX_BYTES:
            raise
        better = mending.mended(data) if mend else mending.with_whole_characters(data)
        if better == data:
            raise
        envelope = _read_envelope(better)
    if envelope.jsonrpc != "2.0":
        raise RpcError(INVALID_REQUEST, 'not a JSON-RPC message: "jsonrpc" must be "2.0"')
    if envelope.method is not msgspec.UNSET:
        params = EMPTY if envelope.params is msgspec.UNSET else Payload(bytes(envelope.params))
        if envelope.id is msgspec.UNSET:
            return Notification(envelope.method, params)
        return Request(_read_id(envelope.id), envelope.method, params)
    if envelope.result is not msgspec.UNSET and envelope.id is not msgspec.UNSET:
        return Response(_read_id(envelope.id), Payload(bytes(envelope.result)))
    if envelope.error is not msgspec.UNSET:
        data_ = None if envelope.error.data is msgspec.UNSET else Payload(bytes(envelope.error.data))
        error = RpcError(envelope.error.code, envelope.error.message, data_)
        no_id = envelope.id is msgspec.UNSET or bytes(envelope.id) == b"null"
        return ErrorResponse(None if no_id else _read_id(envelope.id), error)  # pyright: ignore[reportArgumentType]
    raise RpcError(INVALID_REQUEST, "not a JSON-RPC message: no method, result or error")


def is_id(value: object) -> TypeGuard[Id]:
    """Whether a decoded value can name a request or a token. True equals 1, and is neither."""
    return type(value) in (int, str)


def encode_request(id: Id, method: str, params: Payload | None = None) -> bytes:
    """A request as one line of JSON, without the newline."""
    tail = b"}" if params is None else b',"params":' + params.raw + b"}"
    return b'{"jsonrpc":"2.0","id":' + _encoder.encode(id) + b',"method":' + _encoder.encode(method) + tail


def encode_notification(method: str, params: Payload | None = None) -> bytes:
    """A notification as one line of JSON, without the newline."""
    tail = b"}" if params is None else b',"params":' + params.raw + b"}"
    return b'{"jsonrpc":"2.0","method":' + _encoder.encode(method) + tail


def encode_response(id: Id, result: Payload) -> bytes:
    """A successful answer as one line of JSON, without the newline."""
    return b'{"jsonrpc":"2.0","id":' + _encoder.encode(id) + b',"result":' + result.raw + b"}"


def encode_error(id: Id | None, error: RpcError) -> bytes:
    """An error answer as one line of JSON, without the newline."""
    return _encoder.encode({"jsonrpc": "2.0", "id": id, "error": error.body()})


def _read_envelope(data: bytes) -> _Envelope:
    try:
        envelope = _envelope.decode(data)
        if not data.isascii():
            data.decode()  # members that are kept undecoded were not looked at
    except msgspec.ValidationError as e:
        raise RpcError(INVALID_REQUEST, f"not a JSON-RPC message: {e}") from e
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise RpcError(PARSE_ERROR, f"not JSON: {e}") from e
    return envelope


def _read_id(raw: msgspec.Raw) -> Id:
    try:
        return _id.decode(raw)
    except msgspec.DecodeError as e:
        raise RpcError(INVALID_REQUEST, "a JSON-RPC id must be a string or an integer") from e
