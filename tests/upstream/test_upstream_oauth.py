"""Servers that want a login: who is asked, what is sent, what is kept, what happens after a refusal."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from tests.peers.oauth_server import OAuthPeer
from tests.upstream.oauth_world import REDIRECT, World, world
from tests.upstream.world import text_of, until, use
from tests.wire.http_peer import serving

from nanobot.aio import task_group
from nanobot.config.model import OAuthSettings
from nanobot.errors import LoginRequired, UpstreamUnavailable
from nanobot.upstream.oauth.failures import AuthorizationFailed
from nanobot.upstream.oauth.flow import InvalidState
from nanobot.wire.call import Call, Caller
from nanobot.wire.dispatch import explain
from nanobot.wire.rpc import INTERNAL_ERROR

pytestmark = pytest.mark.anyio

WEB_REDIRECT = "https://nanobot.example/oauth/callback"


async def required(one: World) -> LoginRequired:
    with pytest.raises(LoginRequired) as failure:
        await use(one.upstream, "work")
    return failure.value


async def logged_in(one: World) -> None:
    await one.log_in((await required(one)).auth_url)
    await one.upstream.ready()


async def test_without_anybody_to_ask_the_error_says_where_to_log_in_and_the_login_works_later(
    tmp_path: Path,
) -> None:
    peer = OAuthPeer()
    async with world(peer, tmp_path) as one:
        failure = await required(one)
        assert "nanobot mcp login far" in str(failure)
        error = explain(failure)
        assert error.rpc_code == INTERNAL_ERROR
        assert error.data is not None
        assert error.data.value == {"server": "far", "authUrl": failure.auth_url}
        assert (one.upstream.state.state, one.upstream.state.auth_url) == ("auth_required", failure.auth_url)

        await one.log_in(failure.auth_url)
        assert text_of(await use(one.upstream, "work")) == "done"
        assert (one.upstream.state.state, one.upstream.state.auth_url) == ("ready", "")
        assert [e.key for e in await one.upstream.listing("tools")] == ["work", "write"]
    resource = one.url
    assert [a["resource"] for a in peer.authorized] == [resource]
    assert [form["resource"] for form in peer.token_requests] == [resource]
    assert all(token in peer.access for _, token in peer.messages)


async def test_a_person_behind_the_request_is_asked_and_the_request_goes_on(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []
    async with world(OAuthPeer(), tmp_path) as one:
        assert text_of(await use(one.upstream, "work", one.person(asked=asked))) == "done"
    (question,) = asked
    assert question["mode"] == "url"
    assert question["_meta"] == {
        "ai.nanobot.meta/oauth-url": question["url"],
        "ai.nanobot.meta/server-name": "far",
    }


async def test_a_client_that_knows_forms_only_gets_an_empty_one_with_the_address(tmp_path: Path) -> None:
    async with world(OAuthPeer(), tmp_path) as one:
        asked: list[dict[str, Any]] = []
        call = one.person("decline", asked=asked)
        call.caller = Caller(capabilities={"elicitation": {}})
        with pytest.raises(LoginRequired, match="declined"):
            await use(one.upstream, "work", call)
    (question,) = asked
    assert question["requestedSchema"] == {"type": "object", "properties": {}}
    assert question["_meta"]["ai.nanobot.meta/oauth-url"] in question["message"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_who_declines_gets_an_error_and_is_asked_again_next_time(tmp_path: Path, action: str) -> None:
    async with world(OAuthPeer(), tmp_path) as one:
        with pytest.raises(LoginRequired, match="declined"):
            await use(one.upstream, "work", one.person(action))
        assert text_of(await use(one.upstream, "work", one.person())) == "done"


async def test_a_listing_never_waits_for_a_person(tmp_path: Path) -> None:
    async with world(OAuthPeer(), tmp_path) as one:
        with pytest.raises(LoginRequired):
            await one.upstream.listing("tools")


async def test_twenty_requests_at_once_are_one_login_and_one_question(tmp_path: Path) -> None:
    peer, asked, done = OAuthPeer(), list[dict[str, Any]](), list[str]()
    async with world(peer, tmp_path) as one:

        async def work() -> None:
            done.append(text_of(await use(one.upstream, "work", one.person(asked=asked))))

        async with task_group() as group:
            for _ in range(20):
                group.start_soon(work)
        assert done == ["done"] * 20
        assert (len(asked), len(peer.registered), len(peer.token_requests)) == (1, 1, 1)

        peer.end_grants()  # now the connection is there already
        done.clear()
        async with task_group() as group:
            for _ in range(20):
                group.start_soon(work)
        assert done == ["done"] * 20
        assert (len(asked), len(peer.authorized), len(peer.registered)) == (2, 2, 1)


async def test_a_refused_token_is_renewed_once_for_all_requests(tmp_path: Path) -> None:
    peer = OAuthPeer()
    async with world(peer, tmp_path) as one:
        await logged_in(one)
        peer.expire()
        async with task_group() as group:
            for _ in range(20):
                group.start_soon(use, one.upstream, "work")
    assert (peer.refreshes, peer.reuses) == (1, 0)
    assert peer.token_requests[-1]["resource"] == one.url


async def test_a_token_is_renewed_before_it_ends_and_a_failing_renewal_does_no_harm(tmp_path: Path) -> None:
    now, peer = [1000.0], OAuthPeer()
    async with world(peer, tmp_path, now=lambda: now[0]) as one:
        await logged_in(one)
        now[0] += 3539
        await use(one.upstream, "work")
        assert peer.refreshes == 0
        now[0] += 2
        peer.token_status = 503
        assert text_of(await use(one.upstream, "work")) == "done"  # it is good for a minute
        now[0] += 60
        with pytest.raises(UpstreamUnavailable, match="503") as failure:
            await use(one.upstream, "work")
        assert not isinstance(failure.value, LoginRequired)
        peer.token_status = 200
        assert text_of(await use(one.upstream, "work")) == "done"
        assert peer.reuses == 0


async def test_a_token_of_a_minute_is_not_renewed_at_each_request(tmp_path: Path) -> None:
    peer = OAuthPeer(lasts_s=50)
    async with world(peer, tmp_path) as one:
        await logged_in(one)
        for _ in range(5):
            await use(one.upstream, "work")
    assert peer.refreshes == 0


async def test_a_dead_refresh_token_is_forgotten_and_a_login_needed(tmp_path: Path) -> None:
    peer = OAuthPeer()
    async with world(peer, tmp_path) as one:
        await logged_in(one)
        peer.end_grants()
        failure = await required(one)
        assert one.upstream.state.state == "auth_required"
        await required(one)
        assert peer.refreshes == 1
        await one.log_in(failure.auth_url)
        assert text_of(await use(one.upstream, "work")) == "done"
        assert one.upstream.state.state == "ready"
        assert len(peer.registered) == 1


async def test_a_server_that_refuses_fresh_tokens_too_is_not_asked_again_and_again(tmp_path: Path) -> None:
    peer = OAuthPeer()
    async with world(peer, tmp_path) as one:
        await logged_in(one)
        peer.welcomes_nobody = True
        await required(one)
        assert (peer.refreshes, peer.refused.count("tools/call")) == (1, 2)  # the old token, then the new one
        await required(one)
        assert (peer.refreshes, peer.refused.count("tools/call")) == (1, 3)
        assert one.upstream.state.state == "auth_required"

        asked: list[dict[str, Any]] = []
        with pytest.raises(LoginRequired):
            await use(one.upstream, "work", one.person(asked=asked))
        assert len(asked) == 1


async def test_more_rights_are_asked_for_when_a_tool_needs_them(tmp_path: Path) -> None:
    peer = OAuthPeer(scopes=("read",), tool_scopes={"write": "change", "admin": "all more"})
    async with world(peer, tmp_path) as one:
        await logged_in(one)
        assert peer.authorized[-1]["scope"] == "read"
        with pytest.raises(LoginRequired, match="rights"):
            await use(one.upstream, "write")
        assert one.upstream.state.state == "ready"  # the other tools go on
        assert text_of(await use(one.upstream, "write", one.person())) == "done"
        assert peer.authorized[-1]["scope"] == "read change"

        asked: list[dict[str, Any]] = []
        with pytest.raises(UpstreamUnavailable, match="granted already"):
            await use(one.upstream, "admin", one.person(asked=asked))  # `all more` is never enough for it
        assert len(asked) == 1


async def test_a_restart_keeps_the_login_and_no_file_of_the_home_shows_a_secret(tmp_path: Path) -> None:
    peer = OAuthPeer(auth_methods=("client_secret_post",))
    async with serving(peer) as url:
        async with world(peer, tmp_path, url=url) as one:
            await logged_in(one)
            for file in filter(Path.is_file, tmp_path.rglob("*")):
                assert b"canary" not in file.read_bytes(), file
        async with world(peer, tmp_path, url=url) as one:
            assert text_of(await use(one.upstream, "work")) == "done"
            peer.expire()
            assert text_of(await use(one.upstream, "work")) == "done"
    assert (len(peer.authorized), peer.refreshes) == (1, 1)


async def test_a_login_in_another_process_is_noticed(tmp_path: Path) -> None:
    peer = OAuthPeer()
    async with serving(peer) as url, world(peer, tmp_path, url=url) as here:
        await required(here)
        async with world(peer, tmp_path, url=url) as there:
            await logged_in(there)
        await until(lambda: here.upstream.state.state == "ready")
        there_token = peer.messages[-1][1]
        assert text_of(await use(here.upstream, "work")) == "done"
        assert peer.messages[-1][1] == there_token


async def test_where_nobody_listens_for_the_answer_no_login_is_begun(tmp_path: Path) -> None:
    peer = OAuthPeer()
    async with world(peer, tmp_path, redirect_uri="") as one:
        assert (await required(one)).auth_url == ""
    assert peer.registered == []
    assert peer.looked_up == []


# What comes back from the authorization server


@pytest.mark.parametrize(("redirect_uri", "kind"), [(REDIRECT, "native"), (WEB_REDIRECT, "web")])
async def test_a_registration_says_what_kind_of_program_its_addresses_belong_to(
    tmp_path: Path, redirect_uri: str, kind: str
) -> None:
    peer = OAuthPeer()
    async with world(peer, tmp_path, redirect_uri=redirect_uri) as one:
        await required(one)
    assert [wish["application_type"] for wish in peer.registered] == [kind]


async def test_an_issuer_spelled_in_another_way_is_another_issuer(tmp_path: Path) -> None:
    async with world(OAuthPeer(), tmp_path) as one:
        said = dict(await one.visit((await required(one)).auth_url))
        with pytest.raises(AuthorizationFailed, match="another authorization server"):
            await one.client.flows.answer({**said, "iss": said["iss"] + "/"})


@pytest.mark.parametrize("iss", ["http://127.0.0.1:1", ""])
async def test_an_answer_of_another_issuer_ends_the_login_before_the_code_is_used(
    tmp_path: Path, iss: str
) -> None:
    peer = OAuthPeer(iss=iss)
    async with world(peer, tmp_path) as one:
        url = (await required(one)).auth_url
        with pytest.raises(AuthorizationFailed, match="another authorization server"):
            await one.log_in(url)
    assert peer.token_requests == []


async def test_an_answer_without_the_promised_issuer_is_refused(tmp_path: Path) -> None:
    async with world(OAuthPeer(), tmp_path) as one:
        said = dict(await one.visit((await required(one)).auth_url))
        del said["iss"]
        with pytest.raises(AuthorizationFailed, match="another authorization server"):
            await one.client.flows.answer(said)


async def test_a_server_that_never_says_its_issuer_is_believed(tmp_path: Path) -> None:
    async with world(OAuthPeer(iss=None), tmp_path) as one:
        await logged_in(one)


async def test_an_answer_counts_once_and_for_fifteen_minutes_and_only_if_it_was_asked_for(
    tmp_path: Path,
) -> None:
    now, peer = [1000.0], OAuthPeer()
    async with world(peer, tmp_path, now=lambda: now[0]) as one:
        url = (await required(one)).auth_url
        said = await one.visit(url)
        with pytest.raises(InvalidState):
            await one.client.flows.answer({**said, "state": "made up"})
        now[0] += 901
        with pytest.raises(InvalidState):
            await one.client.flows.answer(said)
        with pytest.raises(LoginRequired):
            await use(one.upstream, "work")
        newer = (await required(one)).auth_url
        assert newer != url
        said = await one.visit(newer)
        await one.client.flows.answer(said)
        with pytest.raises(InvalidState):
            await one.client.flows.answer(said)


async def test_a_login_that_the_server_refuses_ends_and_another_can_be_begun(tmp_path: Path) -> None:
    peer = OAuthPeer(deny="access_denied")
    async with world(peer, tmp_path) as one:
        url = (await required(one)).auth_url
        with pytest.raises(AuthorizationFailed, match="access_denied"):
            await one.log_in(url)
        peer.deny = ""
        await logged_in(one)


# Finding the authorization server


@pytest.mark.parametrize(
    "settings",
    [
        {"hint": False},
        {"hint": False, "path_form": False},
        {"issuer_path": "/tenant"},
        {"described": False},
        {"code_methods": None},
    ],
)
async def test_the_authorization_server_is_found(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with world(OAuthPeer(**settings), tmp_path) as one:
        await logged_in(one)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"issuer_says": "https://other.example"}, "calls itself"),
        ({"resource_says": "http://127.0.0.1:1/mcp"}, "another resource"),
        ({"code_methods": ("plain",)}, "S256"),
        ({"dcr": False}, r"registers no clients.*CLIENT_ID"),
    ],
)
async def test_what_cannot_be_trusted_is_not_used(
    tmp_path: Path, settings: dict[str, Any], reason: str
) -> None:
    peer = OAuthPeer(**settings)
    async with world(peer, tmp_path) as one:
        with pytest.raises(UpstreamUnavailable, match=reason):
            await use(one.upstream, "work")
    assert peer.authorized == []
    assert peer.token_requests == []


# Who we are


async def test_a_client_of_the_definition_is_used_with_its_secret_and_scopes(tmp_path: Path) -> None:
    peer = OAuthPeer(auth_methods=("client_secret_basic",), scopes=("read",))
    peer.clients["ours"] = {"client_secret": "canary: secret"}
    settings = OAuthSettings(client_id="ours", client_secret="${SECRET}", scopes=("write", "read"))
    async with world(peer, tmp_path, env={"SECRET": "canary: secret"}, oauth=settings) as one:
        peer.clients["ours"]["client_secret"] = "canary%3A%20secret"  # as it travels
        await logged_in(one)
    assert peer.registered == []
    assert peer.authorized[0]["client_id"] == "ours"
    assert peer.authorized[0]["scope"] == "write read"


async def test_a_client_can_be_given_by_variables_named_after_the_issuer(tmp_path: Path) -> None:
    peer = OAuthPeer()
    peer.clients["public"] = {}
    async with serving(peer) as url:
        port = url.split(":")[2].split("/")[0]
        env = {f"127_0_0_1_{port}_CLIENT_ID": "public"}
        async with world(peer, tmp_path, env=env, url=url) as one:
            await logged_in(one)
    assert peer.registered == []


async def test_our_document_is_our_client_id_where_it_is_on_the_web(tmp_path: Path) -> None:
    peer = OAuthPeer(cimd=True)
    public = "https://bot.example"
    async with world(peer, tmp_path, public_url=public, redirect_uri=f"{public}/oauth/callback") as one:
        await logged_in(one)
    assert peer.registered == []
    assert peer.authorized[0]["client_id"] == f"{public}/.well-known/oauth-client/nanobot.json"
    assert peer.authorized[0]["redirect_uri"] == f"{public}/oauth/callback"


async def test_a_forgotten_registration_is_renewed(tmp_path: Path) -> None:
    peer = OAuthPeer()
    async with world(peer, tmp_path) as one:
        await logged_in(one)
        assert peer.registered[0]["grant_types"] == ["authorization_code", "refresh_token"]
        peer.clients.clear()
        peer.expire()
        await logged_in(one)
        assert text_of(await use(one.upstream, "work")) == "done"
    assert len(peer.registered) == 2


async def test_configured_credentials_are_not_replaced_by_a_login(tmp_path: Path) -> None:
    peer = OAuthPeer()
    async with world(peer, tmp_path, headers={"authorization": "Bearer mine"}) as one:
        with pytest.raises(UpstreamUnavailable, match="401") as failure:
            await use(one.upstream, "work")
        assert not isinstance(failure.value, LoginRequired)
    assert peer.looked_up == []


async def test_no_token_or_secret_gets_into_logs_or_errors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "nanobot")
    peer = OAuthPeer(auth_methods=("client_secret_post",))
    async with world(peer, tmp_path) as one:
        await logged_in(one)
        peer.expire()
        await use(one.upstream, "work")
        peer.end_grants()
        failure = await required(one)
        grant = await one.store.grants.find(server=one.url)
        seen = f"{failure!r} {one.upstream.state!r} {grant!r}"
    assert "canary" not in seen + caplog.text


# Several processes

WORKER = """
import sys, anyio
from pathlib import Path
from tests.peers.oauth_server import OAuthPeer
from tests.upstream.oauth_world import world
from tests.upstream.world import use
from nanobot.aio import task_group

async def main(path, url, tasks):
    async with world(OAuthPeer(), Path(path), url=url) as one:
        await one.upstream.ready()
        print("ready", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        async with task_group() as group:
            for _ in range(int(tasks)):
                group.start_soon(use, one.upstream, "work")
    print("done", flush=True)

anyio.run(main, *sys.argv[1:])
"""


async def test_fifty_tasks_in_three_processes_renew_an_expired_token_once(tmp_path: Path) -> None:
    peer = OAuthPeer()
    async with serving(peer) as url:
        async with world(peer, tmp_path, url=url) as one:
            await logged_in(one)
        workers = [
            subprocess.Popen(  # noqa: ASYNC220 (it lives longer than the start)
                [sys.executable, "-c", WORKER, str(tmp_path), url, tasks],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                cwd=Path(__file__).parents[2],
            )
            for tasks in ("17", "17", "16")
        ]  # fmt: skip
        try:
            for worker in workers:
                assert worker.stdout is not None
                assert await anyio.to_thread.run_sync(worker.stdout.readline) == "ready\n"
            peer.expire()
            for worker in workers:
                assert worker.stdin is not None
                worker.stdin.write("go\n")
                worker.stdin.flush()
            outputs = [(await anyio.to_thread.run_sync(worker.communicate))[0] for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    assert outputs == ["done\n"] * 3
    assert (peer.refreshes, peer.reuses) == (1, 0)


async def test_cancelling_everybody_who_waits_for_a_renewal_loses_no_token(tmp_path: Path) -> None:
    peer = OAuthPeer()
    async with world(peer, tmp_path) as one:
        await logged_in(one)
        peer.expire()
        async with task_group() as group:
            for _ in range(3):
                group.start_soon(use, one.upstream, "work")
            await until(lambda: peer.refreshes)
            group.cancel_scope.cancel()
        assert text_of(await use(one.upstream, "work", Call())) == "done"
    assert peer.reuses == 0


@pytest.mark.parametrize(
    "address",
    ["https://10.0.0.1/", "https://169.254.169.254/", "https://[fe80::1]/", "https://[::ffff:10.0.0.1]/"],
)
async def test_a_server_cannot_send_us_into_private_networks(tmp_path: Path, address: str) -> None:
    peer = OAuthPeer()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        about = {"WWW-Authenticate": f'Bearer resource_metadata="{address}"'}
        await Response(status_code=401, headers=about)(scope, receive, send)

    async with serving(app) as url, world(peer, tmp_path, url=url) as w:
        with pytest.raises(UpstreamUnavailable, match=r"private or reserved address.*oauth\.allowHosts"):
            await use(w.upstream, "echo", text="x")


async def test_a_server_that_the_operator_did_not_write_down_is_not_reached_on_this_machine(
    tmp_path: Path,
) -> None:
    peer = OAuthPeer()
    async with world(peer, tmp_path, is_trusted=False) as w:
        with pytest.raises(UpstreamUnavailable, match="private or reserved address"):
            await use(w.upstream, "echo", text="x")
    assert peer.refused == peer.looked_up == []
