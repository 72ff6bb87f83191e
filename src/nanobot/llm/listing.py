"""The models that somebody offers: `GET <base>/models`, which all dialects have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from nanobot.http import Http, HttpError
from nanobot.llm import failures

MAX_LISTING: Final = 8 * 1024 * 1024
MAX_MODELS: Final = 10_000
_NOT_FOR_CHAT: Final = ("embed", "rerank", "whisper", "tts", "clip")


async def list_models(
    http: Http,
    provider: str,
    base_url: str,
    *,
    timeout_s: float,
    path: str = "/models",
    headers: Mapping[str, str] | None = None,
    secret: str = "",
) -> list[str]:
    """The names of models one can talk to, in the order they are given; our own are left out.

    `secret` is kept out of errors. Raises `ProviderError` where no list comes back.
    """
    url = base_url + path
    try:
        answer = await http.request("GET", url, headers=headers, timeout_s=timeout_s, max_bytes=MAX_LISTING)
    except HttpError as cause:
        raise failures.broken(provider, cause) from cause
    if answer.status != 200:
        raise failures.refused(provider, answer.status, answer.headers, answer.body, secret=secret)
    try:
        listing = msgspec.json.decode(answer.body, type=_Listing)
    except msgspec.DecodeError as e:
        raise failures.unlisted(provider) from e
    # Our own interface for models may listen where a model server usually does.
    names = [model.id for model in listing.data if model.owned_by != "nanobot"]
    return [name for name in names if not any(word in name.lower() for word in _NOT_FOR_CHAT)][:MAX_MODELS]


class _Listed(msgspec.Struct):
    id: str
    owned_by: Any = None


class _Listing(msgspec.Struct):
    data: list[_Listed]
