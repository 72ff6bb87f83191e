"""Who shares a process of a server with whom: sessions, accounts, everybody."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.peers.oauth_server import OAuthPeer
from tests.server.sharing_client import AUTH, ENVELOPE, MODERN, SharingClient
from tests.server.test_server_auth_keys import INITIALIZE
from tests.server.world import Events, Served, served
from tests.upstream.world import probe, until
from tests.wire.http_peer import Answer, Asked, Peer, serving

from nanobot.config.model import AuthSettings, Config, McpServer, Publish, SessionSettings
from nanobot.config.places import Reference
from nanobot.wire.notifications import ROOTS_CHANGED

pytestmark = pytest.mark.anyio

REMEMBER = "import sys; sys.kept = getattr(sys, 'kept', 0) + 1; result = sys.kept"
ANOTHER_TOOL = (
    "import __main__, json\n"
    "__main__.TOOLS.append({'name': 'secret-of-mine', 'inputSchema': {'type': 'object'}})\n"
    "print(json.dumps({'jsonrpc': '2.0', 'method': 'notifications/tools/list_changed'}), flush=True)\n"
)


@asynccontextmanager
async def sharing(
    home: Path,
    server: McpServer,
    *,
    auth: AuthSettings | None = AUTH,
    sessions: SessionSettings | None = None,
    with_sse: bool = False,
) -> AsyncGenerator[Served]:
    def adjust(config: Config) -> Config:
        publish = Publish(mcp_servers=(Reference(server.name),))
        changed = replace(config, mcp_servers={server.name: server}, publish=publish)
        return changed if sessions is None else replace(changed, sessions=sessions)

    async with served(home, auth=auth, adjust=adjust, with_sse=with_sse) as nanobot:
        yield nanobot


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_two_accounts_have_a_process_each_and_see_nothing_of_each_other(tmp_path: Path) -> None:
    async with sharing(tmp_path, probe(sharing="account")) as nanobot:
        ann, bob = await SharingClient(nanobot, "ann").begin(), await SharingClient(nanobot, "bob").begin()
        assert await ann.pid() != await bob.pid()
        assert [await ann.run(REMEMBER), await ann.run(REMEMBER), await bob.run(REMEMBER)] == [1, 2, 1]


async def test_two_sessions_of_one_account_have_a_process_each_unless_it_is_shared(tmp_path: Path) -> None:
    async with sharing(tmp_path, probe()) as nanobot:
        one, two = await SharingClient(nanobot, "ann").begin(), await SharingClient(nanobot, "ann").begin()
        assert await one.pid() != await two.pid()
        assert await one.pid() == await one.pid()
        assert [await one.run(REMEMBER), await two.run(REMEMBER)] == [1, 1]


@pytest.mark.parametrize(("shared", "accounts_share"), [("account", False), ("global", True)])
async def test_what_is_shared_is_one_process(tmp_path: Path, shared: str, accounts_share: bool) -> None:
    async with sharing(tmp_path, probe(sharing=shared)) as nanobot:
        one, two = await SharingClient(nanobot, "ann").begin(), await SharingClient(nanobot, "ann").begin()
        bob = await SharingClient(nanobot, "bob").begin()
        assert await one.pid() == await two.pid()
        assert (await one.pid() == await bob.pid()) is accounts_share


async def test_modern_requests_of_an_account_share_what_no_session_and_no_other_account_has(
    tmp_path: Path,
) -> None:
    async with sharing(tmp_path, probe()) as nanobot:
        ann, bob = SharingClient(nanobot, "ann"), SharingClient(nanobot, "bob")
        mine = await ann.pid(modern=True)
        assert await SharingClient(nanobot, "ann").pid(modern=True) == mine
        assert await bob.pid(modern=True) != mine
        assert await (await SharingClient(nanobot, "ann").begin()).pid() != mine


async def test_another_token_of_the_same_account_changes_no_connection(tmp_path: Path) -> None:
    async with sharing(tmp_path, probe()) as nanobot:
        ann = await SharingClient(nanobot, "ann").begin()
        pid = await ann.pid()
        renewed = SharingClient(nanobot, "ann renewed")
        renewed.headers["Mcp-Session-Id"] = ann.session
        assert await renewed.pid() == pid


async def test_one_person_alone_has_one_process(tmp_path: Path) -> None:
    """The connection that lists were read through becomes that of the first session."""
    async with sharing(tmp_path, probe(), auth=None) as nanobot:
        client = await SharingClient(nanobot).begin()
        assert await client.tools() == ["attempt"]
        pid = await client.pid()
        states = (await nanobot.ask("GET", "/api/servers")).json["servers"]
        assert [(s["name"], s["state"], s["connections"], s["tools"]) for s in states] == [
            ("probe", "ready", 1, 1)
        ]
        assert states[0]["serverInfo"]["version"] == str(pid)


async def test_the_process_ends_with_its_session_and_others_stay(tmp_path: Path) -> None:
    async with sharing(tmp_path, probe()) as nanobot:
        one, two = await SharingClient(nanobot, "ann").begin(), await SharingClient(nanobot, "ann").begin()
        ending, staying = await one.pid(), await two.pid()
        await one.end()
        await until(lambda: is_gone(ending))
        assert await two.pid() == staying
        assert (await one.ask("tools/list"))["error"]["message"] == "Session not found"


async def test_a_changed_list_is_the_news_of_its_account_alone(tmp_path: Path) -> None:
    async with sharing(tmp_path, probe(sharing="account")) as nanobot:
        ann, bob = await SharingClient(nanobot, "ann").begin(), await SharingClient(nanobot, "bob").begin()
        assert await ann.tools() == await bob.tools() == ["attempt"]
        async with (
            nanobot.events("/mcp", headers=ann.headers) as anns,
            nanobot.events("/mcp", headers=bob.headers) as bobs,
        ):
            await ann.run(ANOTHER_TOOL)
            assert b"tools/list_changed" in await next_message(anns)
            assert await ann.tools() == ["attempt", "secret-of-mine"]
            assert await bob.tools() == ["attempt"]
            refused = await bob.ask("tools/call", name="secret-of-mine", arguments={})
            assert refused["error"]["message"] == "unknown tool 'secret-of-mine'"
            await bob.run(
                ANOTHER_TOOL.replace("secret-of-mine", "of-bob")
            )  # the first that bob hears is his own
            assert b"tools/list_changed" in await next_message(bobs)
            assert await bob.tools() == ["attempt", "of-bob"]


async def next_message(events: Events) -> bytes:
    while True:
        event = await events.next()
        assert event is not None
        if event.data:
            return event.data


async def test_no_more_than_the_most_connections_are_opened_and_the_refusal_says_so(tmp_path: Path) -> None:
    async with sharing(tmp_path, probe(max_connections=2)) as nanobot:
        one, two = await SharingClient(nanobot, "ann").begin(), await SharingClient(nanobot, "bob").begin()
        await one.pid()
        await two.pid()
        three = await SharingClient(nanobot, "ann").begin()
        refused = await three.ask("tools/call", name="attempt", arguments={"code": ""})
        assert "mcpServers.probe.maxConnections" in refused["error"]["message"]
        assert refused["error"]["code"] == -32000
        await two.end()
        assert await three.pid()


async def test_a_client_that_only_listens_keeps_what_it_hears_of_connected(tmp_path: Path) -> None:
    async with sharing(tmp_path, probe()) as nanobot:
        upstreams = nanobot.app.upstreams
        headers = SharingClient(nanobot, "ann").headers | {
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "subscriptions/listen",
        }
        params = {"_meta": ENVELOPE, "notifications": {"toolsListChanged": True}}
        listen = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
        async with nanobot.events("/mcp", listen, headers) as stream:
            await next_message(stream)
            assert upstreams.is_open("ann", None)
            assert not upstreams.is_open("bob", None)
        await until(lambda: not upstreams.is_open("ann", None))


async def test_a_quiet_client_of_the_older_transport_keeps_what_it_used(tmp_path: Path) -> None:
    kept_briefly = SessionSettings(idle_timeout_s=0.05)
    async with sharing(tmp_path, probe(), sessions=kept_briefly, with_sse=True) as nanobot:
        headers = SharingClient(nanobot, "ann").headers
        async with nanobot.events("/sse", headers=headers) as events:
            endpoint = (await next_message(events)).decode()

            async def pid() -> int:
                params = {"name": "attempt", "arguments": {"code": "import os; result = os.getpid()"}}
                call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
                assert (await nanobot.ask("POST", endpoint, call, headers)).status == 202
                return json.loads(await next_message(events))["result"]["result"]

            await nanobot.ask("POST", endpoint, INITIALIZE, headers)
            await next_message(events)
            mine = await pid()
            others = await SharingClient(nanobot, "bob").pid(modern=True)
            await until(lambda: is_gone(others))  # it was used later, and by nobody who is still there
            assert await pid() == mine
        await until(lambda: is_gone(mine))


async def test_what_a_client_says_on_its_own_reaches_the_server_that_is_published_alone(
    tmp_path: Path,
) -> None:
    peer = Peer(usual)
    async with serving(peer) as url, sharing(tmp_path, McpServer(name="far", url=url)) as nanobot:
        ann, bob = await SharingClient(nanobot, "ann").begin(), await SharingClient(nanobot, "bob").begin()
        await tell(nanobot, bob, ROOTS_CHANGED)  # whose sessions have no connection yet
        await ann.ask("x/own")
        await tell(nanobot, ann, "notifications/progress", progressToken=1, progress=1)
        await tell(nanobot, ann, ROOTS_CHANGED)
        await tell(nanobot, ann, "notifications/x/own", kept=[1, {"deep": True}])
        await until(lambda: peer.times(ROOTS_CHANGED) and peer.times("notifications/x/own"))
        (own,) = [asked.message for asked in peer.asked if asked.method == "notifications/x/own"]
        assert own["params"] == {"kept": [1, {"deep": True}]}
        assert (peer.times("notifications/progress"), peer.times(ROOTS_CHANGED)) == (0, 1)


async def usual(asked: Asked) -> Answer:
    return None


async def tell(nanobot: Served, client: SharingClient, method: str, **params: Any) -> None:
    note = {"jsonrpc": "2.0", "method": method, "params": params}
    assert (await nanobot.ask("POST", "/mcp", note, client.headers)).status == 202


async def test_a_server_that_waits_for_the_logins_of_accounts_is_no_failure(tmp_path: Path) -> None:
    async with serving(OAuthPeer()) as url, sharing(tmp_path, McpServer(name="far", url=url)) as nanobot:
        await nanobot.ask("GET", "/healthz")
        await until(lambda: nanobot.app.upstreams["far"].state().state == "auth_required")
        health = await nanobot.ask("GET", "/healthz")
        with anyio.fail_after(20):
            while health.json["status"] == "starting":
                health = await nanobot.ask("GET", "/healthz")
        assert (health.status, health.json["checks"]["catalog"]) == (200, "ok")
        assert health.json["checks"]["servers"]["far"].startswith("auth_required")
