"""Where people come back to after they logged in to an MCP server, and what we say of ourselves there."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from html import escape

import uvicorn
from starlette.types import Receive, Scope, Send

from nanobot.aio import task_group
from nanobot.config.model import ServerSettings
from nanobot.errors import NanobotError
from nanobot.server.auth.plain_page import show_page
from nanobot.server.exchange import Exchange
from nanobot.server.listener import Listener
from nanobot.server.methods import Methods, answer_by_method
from nanobot.server.security import Gate
from nanobot.upstream.oauth.client import CALLBACK_PATH, OAuthClient
from nanobot.upstream.oauth.failures import AuthorizationFailed
from nanobot.upstream.oauth.flow import InvalidState
from nanobot.upstream.oauth.registration import DOCUMENT_PATH, client_document


class OAuthCallback:
    """Routes of the OAuth client. The document about us is there if we have an https address."""

    def __init__(self, client: OAuthClient) -> None:
        self._client = client

    def find(self, path: str) -> Methods | None:
        if path == CALLBACK_PATH:
            return {"GET": self.come_back}
        if path == DOCUMENT_PATH and self._client.public_url.startswith("https://"):
            return {"GET": self.describe}
        return None

    async def come_back(self, http: Exchange) -> None:
        """`GET /oauth/callback`: a small page that says how it went. An answer counts once."""
        if http.method != "GET":
            await http.answer(204, [])  # a HEAD of something that looks at links must not use it up
            return
        try:
            await self._client.flows.answer(http.query, account=http.account)
        except InvalidState:
            text = "This login is unknown, was used before, or took too long: invalid state."
            await _show(http, 400, "Not logged in", text)
        except AuthorizationFailed as e:
            await _show(http, 400, "Not logged in", f"There was no login: {e.reason}.")
        else:
            await _show(http, 200, "Logged in", "You may close this window.")

    async def describe(self, http: Exchange) -> None:
        """`GET /.well-known/oauth-client/nanobot.json`: our client id is the address of this document."""
        await http.answer_json(client_document(self._client.public_url, CALLBACK_PATH))


async def _show(http: Exchange, status: int, title: str, text: str) -> None:
    await show_page(http, title, f"<p>{escape(text)}</p>", status=status)


@asynccontextmanager
async def serving_callback(listener: Listener, client: OAuthClient) -> AsyncGenerator[None]:
    """Serve nothing but these routes on `listener` within the block: for a login from a terminal.

    The last page is sent whole before the block is left.
    """
    callback = OAuthCallback(client)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        http = Exchange(scope, receive, send)
        try:
            await answer_by_method(http, callback.find(scope["path"]))
        except NanobotError as e:
            await http.answer_error(e)

    server = uvicorn.Server(
        uvicorn.Config(
            Gate(application, ServerSettings()),
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
    )
    async with task_group() as group:
        group.start_soon(server.serve, list(listener.sockets))
        yield
        server.should_exit = True
