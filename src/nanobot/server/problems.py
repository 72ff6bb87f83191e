"""What goes wrong, as HTTP says it: the one mapping from our errors to a status and a JSON body."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from nanobot.errors import Busy, Duplicate, NanobotError, NotFound, StoreError, UpstreamError, UpstreamTimeout
from nanobot.ids import new_id
from nanobot.llm.model import ProviderError

Header = tuple[bytes, bytes]

log = logging.getLogger(__name__)


class BadRequest(NanobotError):
    """A request that cannot be carried out as sent. `field` names the part that is wrong, if one is."""

    def __init__(
        self, status: int, code: str, message: str, *, field: str = "", headers: Sequence[Header] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.field = field
        self.headers = headers


def describe_error(error: Exception) -> tuple[int, dict[str, str], Sequence[Header]]:
    """HTTP status, the object `{code, message[, field]}` and extra headers for `error`.

    An exception that nobody raised on purpose is logged; the answer holds a reference to the log and nothing
    else of it.
    """
    match error:
        case BadRequest():
            field = {"field": error.field} if error.field else {}
            return error.status, {**_sentence(error), **field}, error.headers
        case NotFound():
            return 404, _sentence(error), ()
        case Busy():
            return 429, _sentence(error), ((b"retry-after", b"1"),)
        case Duplicate():
            return 409, _sentence(error), ()
        case StoreError():
            return 503, _sentence(error), ((b"retry-after", b"5"),)
        case UpstreamTimeout():
            return 504, _sentence(error), ()
        case UpstreamError() | ProviderError():
            return 502, _sentence(error), ()
        case NanobotError():
            return 500, _sentence(error), ()
        case _:
            reference = new_id("err", 8)
            log.error("a request failed unexpectedly", extra={"reference": reference}, exc_info=error)
            message = f"Something went wrong here; the log tells what, under {reference}."
            return 500, {"code": "internal", "message": message}, ()


def _sentence(error: NanobotError) -> dict[str, str]:
    return {"code": error.code, "message": str(error)}
