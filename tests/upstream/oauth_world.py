"""An upstream that has to log in, with a real store, and a person who does or does not open addresses."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.peers.oauth_server import OAuthPeer, answer_in
from tests.wire.http_peer import serving

from nanobot.aio import task_group
from nanobot.config.model import McpServer
from nanobot.http import Http, open_http
from nanobot.store import Store, open_store
from nanobot.upstream.connection import Upstream
from nanobot.upstream.oauth.client import OAuthClient
from nanobot.wire.call import Call, Caller
from nanobot.wire.rpc import Payload

REDIRECT = "http://localhost:8080/oauth/callback"


@dataclass
class World:
    http: Http
    store: Store
    client: OAuthClient
    upstream: Upstream
    url: str

    async def visit(self, url: str) -> Mapping[str, str]:
        """Open a login page as a browser does; what the redirect back says."""
        answer = await self.http.request("GET", url)
        assert answer.status == 302, answer.body
        return answer_in(answer.headers["Location"])

    async def log_in(self, url: str) -> None:
        await self.client.flows.answer(await self.visit(url))

    def person(self, action: str = "accept", *, asked: list[dict[str, Any]] | None = None) -> Call:
        """The company of a request whose client can be asked; who accepts logs in, too."""

        async def ask(method: str, params: Payload) -> Payload:
            assert method == "elicitation/create"
            question = params.object()
            if asked is not None:
                asked.append(question)
            if action == "accept":
                await self.log_in(question["url"])
            return Payload.of({"action": action})

        caller = Caller(capabilities={"elicitation": {"form": {}, "url": {}}})
        return Call(caller=caller, ask=ask)


@asynccontextmanager
async def world(
    peer: OAuthPeer,
    path: Path,
    *,
    now: Callable[[], float] = time.time,
    env: Mapping[str, str] | None = None,
    public_url: str = "",
    redirect_uri: str = REDIRECT,
    url: str = "",
    **server: Any,
) -> AsyncGenerator[World]:
    """`url`: the peer is served elsewhere already."""
    if not url:
        async with (
            serving(peer) as served,
            world(
                peer, path, now=now, env=env, public_url=public_url, redirect_uri=redirect_uri, url=served,
                **server,
            ) as one,
        ):  # fmt: skip
            yield one
        return
    async with open_http() as http, open_store(path / "nanobot.db") as store, task_group() as group:
        client = OAuthClient(
            http=http,
            grants=store.grants,
            leases=store.leases,
            env=env or {},
            redirect_uri=redirect_uri,
            public_url=public_url,
            now=now,
        )
        definition = McpServer(name="far", url=url, **server)
        upstream = Upstream(
            definition, http=http, env=env or {}, version="1", oauth=client, backoff_s=(0.01,)
        )
        await group.start(upstream.run)
        yield World(http, store, client, upstream, url)
        group.cancel_scope.cancel()
