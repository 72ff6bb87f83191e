"""One published list, encoded once: as a whole, or in pages when it is long."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from nanobot.hub.published import Listing, Missing
from nanobot.wire.rpc import INVALID_PARAMS, Payload, RpcError

WHOLE_MAX: Final = 1000
"""Entries up to which a list is given in one piece."""
PAGE_SIZE: Final = 500
_MAC_BYTES: Final = 16
_OFFSET_BYTES: Final = 4


class Pages:
    """The answers to one list method. `member` is the name of the array in the result.

    A cursor holds a place and a signature over the place and the list's content: it cannot be made up, and
    it is refused as soon as the list has become another one.
    """

    def __init__(self, member: str, key: bytes) -> None:
        self._member = member
        self._key = key
        self._listing: Listing | None = None
        self._digest = b""
        self._pages: dict[int, Payload] = {}
        self.is_news = False
        """Whether somebody may have read another list and was not told. Reset by whoever tells."""

    @property
    def was_read(self) -> bool:
        return self._listing is not None

    def show(self, listing: Listing) -> None:
        """Make `listing` the list; cheap if it is the same object as before."""
        if listing is self._listing:
            return
        encoded = [item.definition.raw for item in listing.items]
        digest = hashlib.blake2b(self._member.encode(), digest_size=16)
        for raw in encoded:
            digest.update(len(raw).to_bytes(8, "big"))
            digest.update(raw)
        self.is_news = self.is_news or (self.was_read and digest.digest() != self._digest)
        self._listing, self._digest = listing, digest.digest()
        self._pages = self._encode(encoded, listing.missing)

    def page(self, cursor: str | None) -> Payload:
        """The result for `cursor`. Raises `RpcError` (-32602) for one that is not ours or out of date."""
        page = self._pages.get(0 if cursor is None else self._place(cursor))
        if page is None:
            raise _bad_cursor()
        return page

    def _encode(self, encoded: Sequence[bytes], missing: Sequence[Missing]) -> dict[int, Payload]:
        size = PAGE_SIZE if len(encoded) > WHOLE_MAX else WHOLE_MAX
        pages: dict[int, Payload] = {}
        for start in range(0, max(len(encoded), 1), size):
            body = b'{"%s":[' % self._member.encode() + b",".join(encoded[start : start + size]) + b"]"
            if start + size < len(encoded):
                body += b',"nextCursor":"%s"' % self._cursor(start + size)
            if missing:
                body += b',"_meta":' + msgspec.json.encode({"ai.nanobot/errors": error_list(missing)})
            pages[start] = Payload(body + b"}")
        return pages

    def _cursor(self, place: int) -> bytes:
        offset = place.to_bytes(_OFFSET_BYTES, "big")
        return base64.urlsafe_b64encode(offset + self._sign(offset))

    def _place(self, cursor: str) -> int:
        try:
            data = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as e:
            raise _bad_cursor() from e
        offset, mac = data[:_OFFSET_BYTES], data[_OFFSET_BYTES:]
        if not hmac.compare_digest(mac, self._sign(offset)):
            raise _bad_cursor()
        return int.from_bytes(offset, "big")

    def _sign(self, offset: bytes) -> bytes:
        return hmac.digest(self._key, self._digest + offset, "sha256")[:_MAC_BYTES]


def error_list(missing: Sequence[Missing]) -> list[dict[str, Any]]:
    """What is missing, as clients are told."""
    return [{"server": one.server, "code": one.code, "message": one.message} for one in missing]


def _bad_cursor() -> RpcError:
    return RpcError(INVALID_PARAMS, "the cursor is out of date or not ours; list again from the start")
