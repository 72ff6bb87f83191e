"""Logins of accounts: whose token a request carries, and who is asked for one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.peers.oauth_server import OAuthPeer
from tests.upstream.oauth_world import World, world
from tests.upstream.world import text_of, until

from nanobot.aio import task_group
from nanobot.config.model import McpServer, SessionSettings, Sharing
from nanobot.errors import LoginRequired
from nanobot.upstream.connection import Upstream
from nanobot.upstream.pool import Pool
from nanobot.upstream.pools import Pools
from nanobot.wire.call import Call, Caller
from nanobot.wire.challenge import Challenge
from nanobot.wire.continuation import Continuation
from nanobot.wire.rpc import Payload
from nanobot.wire.versions import Era

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def pool_of(one: World, *, sharing: Sharing = "session") -> AsyncGenerator[Pool]:
    """Connections of many to the server of `one`."""

    def connect(
        server: McpServer, account: str, era: Era | None, rest: Continuation | None, with_apps: bool
    ) -> Upstream:
        return Upstream(
            server, http=one.http, env={}, version="1", account=account, oauth=one.client, backoff_s=(0.01,)
        )

    pools = Pools([McpServer(name="far", url=one.url, sharing=sharing)], connect, sessions=SessionSettings())
    async with task_group() as group:
        await group.start(pools.run)
        yield pools["far"]
        group.cancel_scope.cancel()


def person(one: World, account: str, session: str, asked: list[str]) -> Call:
    """A client of `account`, whose person logs in wherever it is asked to; each question is noted."""

    async def ask(method: str, params: Payload) -> Payload:
        asked.append(account)
        await one.client.flows.answer(await one.visit(params.object()["url"]), account=account)
        return Payload.of({"action": "accept"})

    caller = Caller(account=account, session=session, capabilities={"elicitation": {"form": {}, "url": {}}})
    return Call(caller=caller, ask=ask)


def silent(account: str, session: str) -> Call:
    return Call(caller=Caller(account=account, session=session))


async def work(pool: Pool, call: Call) -> str:
    params = Payload.of({"name": "work", "arguments": {}})
    return text_of((await pool.request("tools/call", params, call)).object())


def tokens(peer: OAuthPeer) -> list[str]:
    return [token for method, token in peer.messages if method == "tools/call"]


async def test_the_login_of_one_account_is_not_used_for_another(tmp_path: Path) -> None:
    peer, asked = OAuthPeer(), list[str]()
    async with world(peer, tmp_path) as one, pool_of(one) as pool:
        assert await work(pool, person(one, "ann", "s1", asked)) == "done"
        with pytest.raises(LoginRequired) as refused:
            await work(pool, silent("bob", "s2"))
        assert refused.value.auth_url
        assert "nanobot mcp login" not in str(refused.value)
        assert pool.state("bob").auth_url == refused.value.auth_url
        assert pool.state("ann").auth_url == pool.state("cy").auth_url == ""
        assert await work(pool, person(one, "bob", "s3", asked)) == "done"
        assert await work(pool, silent("ann", "s4")) == "done"
    anns, bobs, again = tokens(peer)
    assert anns == again != bobs
    assert asked == ["ann", "bob"]


async def test_a_login_page_of_one_account_cannot_be_completed_by_another(tmp_path: Path) -> None:
    from nanobot.upstream.oauth.flow import InvalidState

    async with world(OAuthPeer(), tmp_path) as one, pool_of(one) as pool:
        with pytest.raises(LoginRequired) as refused:
            await work(pool, silent("ann", "s"))
        said = await one.visit(refused.value.auth_url)
        with pytest.raises(InvalidState):
            await one.client.flows.answer(said, account="bob")
        await one.client.flows.answer(said, account="ann")
        assert await work(pool, silent("ann", "s")) == "done"


async def test_all_sessions_of_an_account_need_one_login(tmp_path: Path) -> None:
    peer, asked, done = OAuthPeer(), list[str](), list[str]()
    async with world(peer, tmp_path) as one, pool_of(one) as pool:

        async def one_session(name: str) -> None:
            done.append(await work(pool, person(one, "ann", name, asked)))

        async with anyio.create_task_group() as group:
            for n in range(20):
                group.start_soon(one_session, f"s{n}")
    assert done == ["done"] * 20
    assert asked == ["ann"]
    assert len(peer.token_requests) == 1


async def test_a_server_that_everybody_shares_is_logged_in_by_its_operator_alone(tmp_path: Path) -> None:
    peer, asked = OAuthPeer(), list[str]()
    async with world(peer, tmp_path) as one, pool_of(one, sharing="global") as pool:
        with pytest.raises(LoginRequired) as refused:
            await work(pool, person(one, "ann", "s1", asked))
        assert refused.value.auth_url == ""
        assert "nanobot mcp login far" in str(refused.value)
        assert asked == []
        flow = await one.client.authorizer(McpServer(name="far"), one.url).begin_login(Challenge(status=401))
        assert flow is not None
        await one.log_in(flow.url)
        await until(lambda: pool.state().state == "ready")
        assert await work(pool, person(one, "ann", "s1", asked)) == "done"
        assert await work(pool, person(one, "bob", "s2", asked)) == "done"
    assert asked == []
