"""Parameters of forms and addresses, where a repeated one means that somebody plays games."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from nanobot.server.exchange import Exchange
from nanobot.server.problems import BadRequest

MAX_FORM: Final = 64 * 1024


async def read_form(http: Exchange) -> Mapping[str, str]:
    """The fields of a posted form. Raises `BadRequest` (415, 413, 400)."""
    kind = http.header(b"content-type").split(b";", 1)[0].strip().lower()
    if kind != b"application/x-www-form-urlencoded":
        raise BadRequest(415, "content_type", "Send `Content-Type: application/x-www-form-urlencoded`.")
    return _once(await http.read(MAX_FORM))


def read_query(http: Exchange) -> Mapping[str, str]:
    """The parameters in the address. Raises `BadRequest` (400)."""
    return _once(http.scope["query_string"])


def _once(raw: bytes) -> Mapping[str, str]:
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=100)
    except ValueError as e:
        raise BadRequest(400, "invalid_request", "The parameters cannot be read.") from e
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise BadRequest(400, "invalid_request", "A parameter is given twice.")
    return fields
