"""Reading the JSON documents in which servers describe themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urljoin

import msgspec

from nanobot.http import Http, HttpError
from nanobot.upstream.oauth.addresses import ALLOW, checked
from nanobot.upstream.oauth.failures import AuthorizationFailed

MAX_DOCUMENT: Final = 64 * 1024
DOCUMENT_S: Final = 5.0
MAX_REDIRECTS: Final = 5

_REDIRECTS = (301, 302, 303, 307, 308)
_decode = msgspec.json.Decoder(dict[str, Any]).decode


async def fetch_document(http: Http, url: str) -> Mapping[str, Any] | None:
    """The JSON object at `url`; None if there is none (4xx, or a page for people).

    Raises `AuthorizationFailed` when the server cannot be asked now (network, 429, 5xx) or leads us astray.
    """
    what = "the address of a metadata document"
    for _ in range(MAX_REDIRECTS + 1):
        checked(url, what)
        try:
            answer = await http.request(
                "GET",
                url,
                headers={"Accept": "application/json"},
                timeout_s=DOCUMENT_S,
                max_bytes=MAX_DOCUMENT,
            )
        except HttpError as e:
            hint = f" ({ALLOW})" if e.kind == "forbidden" else ""
            raise AuthorizationFailed(f"its login cannot be looked up: {e}{hint}") from e
        if answer.status == 200:
            return _object(answer.body)
        if answer.status not in _REDIRECTS:
            break
        url = urljoin(url, answer.headers.get("Location", ""))
    else:
        raise AuthorizationFailed("its login cannot be looked up: it redirects in circles")
    if answer.status == 429 or answer.status >= 500:
        raise AuthorizationFailed(f"its login cannot be looked up: HTTP status {answer.status}")
    return None


def _object(body: bytes) -> Mapping[str, Any] | None:
    try:
        return _decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
