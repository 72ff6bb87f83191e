"""What the conformance suite runs as a client: our `Upstream`, and a person who tries everything on offer.

`python -m tests.conformance.client URL`. The person logs in when asked to, accepts every form as it is, and
calls each tool: with the arguments that the suite names, else with ones that fit its schema.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio

from nanobot.aio import task_group
from nanobot.config.model import McpServer, OAuthSettings
from nanobot.errors import LoginRequired, UpstreamError
from nanobot.http import Http, open_http
from nanobot.store import open_store
from nanobot.upstream.connection import CAPABILITIES, Upstream
from nanobot.upstream.oauth.client import OAuthClient
from nanobot.upstream.oauth.failures import AuthorizationFailed
from nanobot.wire.call import Call, Caller
from nanobot.wire.client import EraChoice
from nanobot.wire.rpc import Payload, RpcError
from nanobot.wire.versions import MODERN_VERSIONS

PUBLIC_URL = "https://conformance-test.local"
REDIRECT = f"{PUBLIC_URL}/oauth/callback"
MAX_LOGINS = 3
SAMPLES: Mapping[str, Any] = {
    "string": "text", "integer": 1, "number": 2.5, "boolean": True, "array": [], "object": {},
}  # fmt: skip


class Person:
    """Whoever sits before the client: opens addresses and fills in forms."""

    def __init__(self, http: Http, oauth: OAuthClient) -> None:
        self._http = http
        self._oauth = oauth
        self.call = Call(caller=Caller(capabilities=CAPABILITIES), ask=self._answer)

    async def log_in(self, url: str) -> None:
        """Open a login page, which sends us back at once. Raises `AuthorizationFailed`."""
        page = await self._http.request("GET", url)
        back = page.headers.get("Location", "")
        await self._oauth.flows.answer(dict(parse_qsl(urlsplit(back).query)))

    async def _answer(self, method: str, params: Payload) -> Payload:
        match method:
            case "roots/list":
                return Payload.of({"roots": [{"uri": "file:///work", "name": "work"}]})
            case "sampling/createMessage":
                content = {"type": "text", "text": "An answer."}
                return Payload.of({"role": "assistant", "content": content, "model": "person"})
            case _:
                return Payload.of(await self._elicited(params.object()))

    async def _elicited(self, question: Mapping[str, Any]) -> dict[str, Any]:
        if "url" in question:
            try:
                await self.log_in(question["url"])
            except AuthorizationFailed:
                pass  # whoever waits for the login is told, too
            return {"action": "accept"}
        return {"action": "accept", "content": suggested(question.get("requestedSchema", {}))}


def suggested(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What a form says before anybody has changed it."""
    fields = schema.get("properties", {})
    return {name: field["default"] for name, field in fields.items() if "default" in field}


def fitting(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for a tool with this input schema."""
    properties = schema.get("properties", {})
    return {name: SAMPLES.get(field.get("type"), "text") for name, field in properties.items()}


async def use(upstream: Upstream, person: Person, calls: Sequence[Mapping[str, Any]]) -> None:
    """Read every list and try all of what is in them. Raises what the last refusal said."""
    listed = {kind: await listing(upstream, person, kind) for kind in ("tools", "resources", "prompts")}
    tools = [tool.definition.object() for tool in listed["tools"]]
    wanted = {call["name"]: call["arguments"] for call in calls}
    for tool in tools:
        arguments = wanted.get(tool["name"]) or fitting(tool["inputSchema"])
        if "schema" in arguments:  # it gives back what we know of another tool
            arguments["schema"] = tools[0]["inputSchema"]
        await request(upstream, person, "tools/call", {"name": tool["name"], "arguments": arguments})
    for resource in listed["resources"]:
        await request(upstream, person, "resources/read", {"uri": resource.key})
    for prompt in listed["prompts"]:
        await request(upstream, person, "prompts/get", {"name": prompt.key})


async def listing(upstream: Upstream, person: Person, kind: Any) -> Sequence[Any]:
    for _ in range(MAX_LOGINS):
        try:
            return await upstream.listing(kind)
        except LoginRequired as e:
            if not e.auth_url:
                raise
            await person.log_in(e.auth_url)
    raise AssertionError("logging in did not help")


async def request(upstream: Upstream, person: Person, method: str, params: Mapping[str, Any]) -> None:
    try:
        result = await upstream.request(method, Payload.of(params), person.call)
    except RpcError as refusal:
        print(method, params, "refused:", refusal)
    else:
        print(method, params, result.raw.decode())


async def main(url: str, era: EraChoice, context: Mapping[str, Any]) -> None:
    """`era` is said by the suite: on a machine full of its clients, silence would not tell it reliably."""
    settings = OAuthSettings(
        client_id=context.get("client_id", ""), client_secret=context.get("client_secret", "")
    )
    with tempfile.TemporaryDirectory() as home:
        async with (
            open_http() as http,
            open_store(Path(home) / "nanobot.db") as store,
            task_group() as group,
        ):
            oauth = OAuthClient(
                http=http,
                grants=store.grants,
                leases=store.leases,
                env={},
                redirect_uri=REDIRECT,
                public_url=PUBLIC_URL,
            )
            server = McpServer(
                name="suite", url=url, protocol=era, oauth=settings if settings.client_id else None
            )
            upstream = Upstream(server, http=http, env={}, version="1", oauth=oauth)
            await group.start(upstream.run)
            try:
                await use(upstream, Person(http, oauth), context.get("toolCalls", ()))
            finally:
                group.cancel_scope.cancel()


if __name__ == "__main__":
    try:
        anyio.run(
            main,
            sys.argv[1],
            "modern" if os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"] in MODERN_VERSIONS else "legacy",
            json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
        )
    except (UpstreamError, AuthorizationFailed, RpcError) as e:
        sys.exit(f"{type(e).__name__}: {e}")
