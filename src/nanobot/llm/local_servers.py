"""Finding model servers on this machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import anyio

from nanobot.aio import task_group
from nanobot.http import Http
from nanobot.llm.listing import list_models
from nanobot.llm.model import ProviderError
from nanobot.llm.registry import LOCAL_SERVERS

VARIABLE: Final = "NANOBOT_LOCAL_MODELS"
"""Base URLs to look at instead of the usual ones, with commas between; `off` looks nowhere."""
ANSWER_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server that answered, and its models, at least one; the first is used where none is named."""

    provider: str
    base_url: str
    models: Sequence[str]


async def find_local_servers(
    http: Http, env: Mapping[str, str], *, avoid_ports: Collection[int] = ()
) -> list[LocalServer]:
    """The servers that list models, the most preferred first. Asks all at once, for a second or so."""
    places = _places(env)
    found: dict[str, LocalServer] = {}

    async def ask(provider: str, base_url: str) -> None:
        with suppress(ProviderError):
            if models := await list_models(http, provider, base_url, timeout_s=ANSWER_S):
                found[provider] = LocalServer(provider, base_url, models)

    with anyio.move_on_after(2 * ANSWER_S):
        async with task_group() as asking:
            for provider, base_url in places.items():
                if urlsplit(base_url).port not in avoid_ports:
                    asking.start_soon(ask, provider, base_url)
    return [found[provider] for provider in places if provider in found]


def _places(env: Mapping[str, str]) -> Mapping[str, str]:
    written = env.get(VARIABLE, "").strip()
    if not written:
        return LOCAL_SERVERS
    if written == "off":
        return {}
    urls = [u.strip().rstrip("/") for u in written.split(",") if u.strip()]
    return {f"local_{n}" if n else "local": url for n, url in enumerate(urls)}
