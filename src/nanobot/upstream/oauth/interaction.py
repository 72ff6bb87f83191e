"""Putting a login to the person behind a request: their client shows the address and they come back."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import urlsplit

import anyio

from nanobot.aio import task_group
from nanobot.errors import LoginRequired
from nanobot.upstream.oauth.flow import Flow
from nanobot.wire.call import Call
from nanobot.wire.rpc import Payload, RpcError

ELICIT = "elicitation/create"
COMPLETE = "notifications/elicitation/complete"
META_URL = "ai.nanobot.meta/oauth-url"
META_SERVER = "ai.nanobot.meta/server-name"


def way_to_ask(call: Call) -> Literal["url", "form"] | None:
    """How the client of `call` can be asked to open an address; None if it cannot be asked anything."""
    ways = call.caller.capabilities.get("elicitation")
    if call.ask is None or not isinstance(ways, dict):
        return None
    if "url" in ways:
        return "url"
    return "form" if "form" in ways or not ways else None  # an empty object has always meant forms


async def log_in(flow: Flow, call: Call, *, server: str) -> None:
    """Return when somebody has logged in. Callers of one flow share one question.

    There must be a `way_to_ask`. Raises `LoginRequired` when they decline or the login fails.
    """
    declined = flow.declined
    async with flow.asking:
        if flow.is_open and flow.declined == declined:
            await _ask(flow, call, server)
        if flow.declined != declined:
            raise LoginRequired(server, "the login was declined", auth_url=flow.url)
    if not flow.done.is_set():
        raise LoginRequired(server, "nobody logged in in time")
    if flow.failure:
        raise LoginRequired(server, flow.failure)


async def _ask(flow: Flow, call: Call, server: str) -> None:
    """Ask, and wait until the login is done, declined or too late."""
    way, ask = way_to_ask(call), call.ask
    assert way is not None
    assert ask is not None
    question = Payload.of(_question(flow, server, way))
    trouble: RpcError | None = None

    async def put() -> None:
        nonlocal trouble
        try:
            answer = (await ask(ELICIT, question)).object()
        except RpcError as e:
            trouble = e
        else:
            if answer.get("action") == "accept":
                return  # they are on their way
            flow.declined += 1
        group.cancel_scope.cancel()

    async with task_group() as group:
        group.start_soon(put)
        with anyio.move_on_after(max(0.0, flow.left_s)):
            await flow.done.wait()
        group.cancel_scope.cancel()
    if trouble is not None and not flow.done.is_set():
        raise LoginRequired(server, "its login could not be asked for", auth_url=flow.url) from trouble
    if way == "url" and flow.done.is_set() and call.notify is not None:
        call.notify(COMPLETE, Payload.of({"elicitationId": flow.id}))


def _question(flow: Flow, server: str, way: Literal["url", "form"]) -> dict[str, Any]:
    host = urlsplit(flow.url).hostname
    params: dict[str, Any] = {
        "message": f"The MCP server {server!r} wants you to log in at {host}. Open {flow.url} to do so.",
        "_meta": {META_URL: flow.url, META_SERVER: server},
    }
    if way == "url":
        return params | {"mode": "url", "url": flow.url, "elicitationId": flow.id}
    return params | {"requestedSchema": {"type": "object", "properties": {}}}
