"""Finding a model server on this machine."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import msgspec

from nanobot.aio import task_group
from nanobot.http import Http, HttpError
from nanobot.llm.registry import LOCAL_SERVERS

log = logging.getLogger(__name__)

VARIABLE: Final = "NANOBOT_LOCAL_MODELS"
"""Base URLs to look at instead of the usual ones, with commas between; `off` looks nowhere."""
ANSWER_S: Final = 1.0
_NOT_FOR_CHAT: Final = ("embed", "rerank", "whisper", "tts", "clip")


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server that answered, and a model it offers."""

    provider: str
    base_url: str
    model: str


async def find_local_server(
    http: Http, env: Mapping[str, str], *, avoid_ports: Collection[int] = ()
) -> LocalServer | None:
    """The most preferred server that lists models. Asks all at once and takes about a second at most."""
    places = _places(env)
    found: dict[str, LocalServer] = {}

    async def ask(provider: str, base_url: str) -> None:
        if model := await _first_model(http, base_url):
            found[provider] = LocalServer(provider, base_url, model)

    with anyio.move_on_after(2 * ANSWER_S):
        async with task_group() as asking:
            for provider, base_url in places.items():
                if urlsplit(base_url).port not in avoid_ports:
                    asking.start_soon(ask, provider, base_url)
    return next((found[p] for p in places if p in found), None)


def _places(env: Mapping[str, str]) -> Mapping[str, str]:
    written = env.get(VARIABLE, "").strip()
    if not written:
        return LOCAL_SERVERS
    if written == "off":
        return {}
    urls = [u.strip().rstrip("/") for u in written.split(",") if u.strip()]
    return {f"local_{n}" if n else "local": url for n, url in enumerate(urls)}


async def _first_model(http: Http, base_url: str) -> str | None:
    try:
        answer = await http.request("GET", base_url + "/models", timeout_s=ANSWER_S, max_bytes=1024 * 1024)
    except HttpError:
        return None
    if answer.status != 200:
        return None
    try:
        listing = msgspec.json.decode(answer.body, type=_Listing)
    except msgspec.DecodeError:
        return None
    for model in listing.data:
        # Our own interface for models may listen on one of these ports too.
        if model.owned_by != "nanobot" and not any(word in model.id.lower() for word in _NOT_FOR_CHAT):
            return model.id
    return None


class _Listed(msgspec.Struct):
    id: str
    owned_by: Any = None


class _Listing(msgspec.Struct):
    data: list[_Listed]
