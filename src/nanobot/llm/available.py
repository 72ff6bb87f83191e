"""What can be used now: the models of every provider and every server of this machine that answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

from nanobot.aio import task_group
from nanobot.http import Http
from nanobot.llm.listing import list_models
from nanobot.llm.local_servers import LocalServer, find_local_servers
from nanobot.llm.model import ProviderError
from nanobot.llm.registry import PROVIDERS
from nanobot.llm.router import Models, Reachable, Unusable

ANSWER_S: Final = 10.0

Source = Literal["key", "configured", "local", "built-in"]


@dataclass(frozen=True, slots=True)
class Available:
    """A model under the name that configuration takes.

    `source`: its provider has a key, or is configured and needs none; it is of a server of this machine, at
    `address` (`host:port`); or it is built in.
    """

    model: str
    provider: str
    source: Source
    address: str = ""


@dataclass(frozen=True, slots=True)
class Availability:
    """The models, those of one provider together. `silent`: a sentence by provider that tells none."""

    models: Sequence[Available]
    silent: Mapping[str, str]


async def find_available(models: Models, http: Http, env: Mapping[str, str]) -> Availability:
    """Ask everybody at once; nobody is waited for longer than ten seconds."""
    found: dict[str, list[str]] = {}
    silent: dict[str, str] = {}
    local: list[LocalServer] = []
    asked: dict[str, Reachable] = {}

    async def ask(provider: str, one: Reachable) -> None:
        try:
            found[provider] = await _models_of(http, one)
        except ProviderError as e:
            silent[provider] = str(e)

    async with task_group() as asking:
        for one in models.providers():
            match one:
                case Unusable(provider, message):
                    silent[provider] = message
                case Reachable(_, endpoint):
                    asked[endpoint.provider] = one
                    asking.start_soon(ask, endpoint.provider, one)
        local += await find_local_servers(http, env)
    listed = [
        Available(f"{provider}/{name}", provider, "key" if one.endpoint.api_key else "configured")
        for provider, one in asked.items()
        for name in sorted(found.get(provider, ()))
    ]
    listed += [
        model for server in local if server.provider not in asked for model in _of(server, models.default())
    ]
    return Availability([*listed, Available("demo", "demo", "built-in")], silent)


async def _models_of(http: Http, one: Reachable) -> list[str]:
    return await list_models(
        http,
        one.endpoint.provider,
        one.endpoint.base_url,
        path=one.dialect.models_path,
        headers=one.endpoint.laid_over(one.dialect.headers(one.endpoint)),
        secret=one.endpoint.api_key,
        timeout_s=ANSWER_S,
    )


def _of(server: LocalServer, default: str) -> list[Available]:
    """What `server` offers. One whose provider has no name in the configuration can only be the default."""
    address = urlsplit(server.base_url)
    at = f"{address.hostname}:{address.port}" if address.port else address.hostname or ""
    names = [f"{server.provider}/{name}" for name in server.models]
    return [
        Available(name, server.provider, "local", at)
        for name in names
        if server.provider in PROVIDERS or name == default
    ]
