"""What callers bring along: it goes where the operator wrote that it goes, and to nobody else."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.server.test_server_auth_keys import ANN, BOB, INITIALIZE, KEYS, MCP_POST, by
from tests.server.world import Served, served
from tests.wire.http_peer import Answer, Asked, Peer, answer, serving

from nanobot.aio import task_group
from nanobot.config.load import Selection, load_config
from nanobot.config.model import AuthSettings, Config, ServerSettings
from nanobot.config.places import Reference
from nanobot.errors import ConfigError
from nanobot.wire.notifications import ROOTS_CHANGED

pytestmark = pytest.mark.anyio

TOKEN = 'headers: {Authorization: "Bearer ${http:bearer-token}"}'
TOOL = {"name": "work", "inputSchema": {"type": "object"}}


def load(folder: Path, text: str, **env: str) -> Config:
    """What a person wrote, checked."""
    path = folder / "nanobot.yaml"
    path.write_text(text)
    return load_config(Selection(sources=(str(path),), env=env, cwd=folder, builtin_agents=False))


@asynccontextmanager
async def relaying(
    folder: Path, definition: str, *, more: str = "", auth: AuthSettings | None = None,
    settings: ServerSettings | None = None, gate: anyio.Event | None = None, **env: str,
) -> AsyncGenerator[tuple[Served, Peer]]:  # fmt: skip
    """A nanobot in front of one server with `definition` and another that is told nothing."""

    async def one(asked: Asked) -> Answer:
        if asked.method == "tools/list":
            return answer(asked, {"tools": [TOOL]})
        if asked.method == "tools/call":
            if gate is not None:
                await gate.wait()
            said = asked.headers.get("authorization", "")
            return answer(asked, {"content": [{"type": "text", "text": said}]})
        return None

    peer, quiet = Peer(one), Peer(one)
    async with serving(peer) as url, serving(quiet) as elsewhere:
        config = load(
            folder,
            f"mcpServers:\n  far: {{url: '{url}', toolPrefix: far_, {definition}}}\n"
            f"  quiet: {{url: '{elsewhere}'}}\npublish: {{mcpServers: [far, quiet]}}\n{more}",
            **env,
        )

        def adjust(plain: Config) -> Config:
            return replace(
                plain,
                mcp_servers=config.mcp_servers,
                publish=replace(plain.publish, mcp_servers=(Reference("far"), Reference("quiet"))),
                env_vars=config.env_vars,
                env=config.env,
            )

        async with served(
            folder / "home", auth=auth, settings=settings, adjust=adjust, with_sse=True
        ) as nanobot:
            yield nanobot, peer
    assert not any("CANARY" in json.dumps(asked.headers) for asked in quiet.asked)


async def session(nanobot: Served, **headers: str) -> dict[str, str]:
    hello = await nanobot.ask("POST", "/mcp", INITIALIZE, MCP_POST | headers)
    assert hello.status == 200, hello.body
    return {**MCP_POST, "Accept": "application/json", "Mcp-Session-Id": hello.headers["Mcp-Session-Id"]}


def call(id: int) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": "tools/call",
        "params": {"name": "far_work", "arguments": {}},
    }


async def work(nanobot: Served, headers: dict[str, str], id: int = 2) -> str:
    said = (await nanobot.ask("POST", "/mcp", call(id), headers)).json
    return said["result"]["content"][0]["text"] if "result" in said else said["error"]["message"]


async def test_the_token_of_each_request_is_passed_on_and_no_other(tmp_path: Path) -> None:
    gate = anyio.Event()
    async with relaying(tmp_path, TOKEN, auth=KEYS, gate=gate) as (nanobot, peer):
        ann = await session(nanobot, **by(ANN))
        bob = await session(nanobot, **by(BOB))
        said: dict[int, str] = {}

        async def ask(id: int, headers: dict[str, str]) -> None:
            said[id] = await work(nanobot, headers, id)

        async with task_group() as group:
            for id in range(10, 20):
                group.start_soon(ask, id, ann | by(ANN) if id % 2 else bob | by(BOB))
            while peer.times("tools/call") < 10:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            gate.set()
        assert said == {id: f"Bearer {ANN if id % 2 else BOB}" for id in range(10, 20)}


async def test_each_message_of_a_client_of_the_older_transport_brings_its_own(tmp_path: Path) -> None:
    definition = 'headers: {Authorization: "${http:bearer-token} of ${TEAM}"}'
    more = "env: {TEAM: {}}"
    async with relaying(tmp_path, definition, more=more) as (nanobot, _):
        own = {"X-Nanobot-Env-Team": "red"}
        async with nanobot.events("/sse", headers=own | by("CANARY-0")) as events:
            endpoint = (await events.until("endpoint"))[-1].data.decode()
            await nanobot.ask("POST", endpoint, INITIALIZE, own | by("CANARY-1"))
            for id in range(2, 6):
                await nanobot.ask("POST", endpoint, call(id), own | by(f"CANARY-{id}"))
            said: dict[Any, str] = {}
            while len(said) < 5:
                message = json.loads((await events.until("message"))[-1].data)
                said[message["id"]] = json.dumps(message.get("result", message))
        for id in range(2, 6):
            assert f"CANARY-{id} of red" in said[id]


async def test_of_several_servers_each_hears_of_changed_roots_and_of_nothing_else(tmp_path: Path) -> None:
    async with relaying(tmp_path, TOKEN) as (nanobot, peer):
        one = await session(nanobot)
        assert await work(nanobot, one | by("CANARY-1")) == "Bearer CANARY-1"
        for method in ("notifications/x/own", ROOTS_CHANGED):
            note = {"jsonrpc": "2.0", "method": method}
            assert (await nanobot.ask("POST", "/mcp", note, one | by("CANARY-2"))).status == 202
        with anyio.fail_after(20):
            while not peer.times(ROOTS_CHANGED):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        (told,) = [asked for asked in peer.asked if asked.method == ROOTS_CHANGED]
        assert told.headers["authorization"] == "Bearer CANARY-2"
        assert peer.times("notifications/x/own") == 0


async def test_requests_of_one_session_keep_their_tokens_apart(tmp_path: Path) -> None:
    gate = anyio.Event()
    async with relaying(tmp_path, TOKEN, gate=gate) as (nanobot, peer):
        one = await session(nanobot, **by("first-CANARY"))
        said: dict[int, str] = {}

        async def ask(id: int) -> None:
            said[id] = await work(nanobot, one | by(f"CANARY-{id}"), id)

        async with task_group() as group:
            for id in range(10, 30):
                group.start_soon(ask, id)
            while peer.times("tools/call") < 20:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            gate.set()
        assert said == {id: f"Bearer CANARY-{id}" for id in range(10, 30)}


async def test_a_caller_without_a_token_is_told_and_one_who_has_it_is_served_at_once(tmp_path: Path) -> None:
    async with relaying(tmp_path, TOKEN) as (nanobot, peer):
        one = await session(nanobot)
        assert "send `Authorization: Bearer" in await work(nanobot, one)  # its list could not be read
        assert await work(nanobot, one | by("CANARY"), 3) == "Bearer CANARY"
        assert "send `Authorization: Bearer" in await work(nanobot, one, 4)
        assert peer.times("tools/call") == 1


async def test_r15_a_token_that_nobody_asked_for_goes_nowhere(tmp_path: Path) -> None:
    async with relaying(tmp_path, "headers: {X-Own: mine}", auth=KEYS) as (nanobot, peer):
        one = await session(nanobot, **by(ANN))
        assert (
            await work(nanobot, one | by(ANN, **{"X-Nanobot-Env-Home": "CANARY", "Cookie": "a=CANARY"})) == ""
        )
        assert peer.times("tools/call") == 1
        assert "CANARY" not in json.dumps([[asked.headers, asked.message] for asked in peer.asked])


async def test_declared_variables_may_come_with_a_request_and_no_others(tmp_path: Path) -> None:
    definition = 'headers: {Authorization: "${TEAM}/${HIDDEN}"}'
    more = "env: {TEAM: {optional: true, default: none}}"
    async with relaying(tmp_path, definition, more=more, TEAM="ours", HIDDEN="h") as (nanobot, _):
        one = await session(nanobot)
        assert await work(nanobot, one) == "ours/h"
        given = {"x-nanobot-env-team": "theirs", "X-Nanobot-Env-HIDDEN": "CANARY"}
        assert await work(nanobot, one | given, 3) == "theirs/h"


async def test_a_variable_that_stands_for_the_token(tmp_path: Path) -> None:
    definition = 'headers: {Authorization: "Bearer ${TOKEN}"}'
    more = "env: {TOKEN: {useBearerToken: true}}"
    async with relaying(tmp_path, definition, more=more) as (nanobot, _):
        one = await session(nanobot, **by("CANARY"))
        assert await work(nanobot, one | by("CANARY")) == "Bearer CANARY"


async def test_a_trusted_proxy_brings_the_token_of_its_user(tmp_path: Path) -> None:
    settings = ServerSettings(trusted_proxies=("127.0.0.1",))
    auth = AuthSettings(remote_headers=True)
    said = {"X-Forwarded-User": "ann", "X-Forwarded-Access-Token": "CANARY"}
    async with relaying(tmp_path, TOKEN, auth=auth, settings=settings) as (nanobot, _):
        said["Origin"] = nanobot.url
        one = await session(nanobot, **said)
        assert await work(nanobot, one | said) == "Bearer CANARY"


async def test_who_sends_a_token_to_a_stranger_is_warned_once_and_the_token_is_in_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "nanobot")
    claims = base64.urlsafe_b64encode(b'{"aud": ["https://other.example/mcp"]}').decode().rstrip("=")
    token = f"CANARY.{claims}.sig"
    async with relaying(tmp_path, TOKEN) as (nanobot, _):
        one = await session(nanobot)
        for id in (2, 3):
            assert await work(nanobot, one | by(token), id) == f"Bearer {token}"
    warnings = [r for r in caplog.records if "was not made for" in r.message]
    assert len(warnings) == 1
    assert vars(warnings[0])["audience"] == ["other.example"]
    assert "CANARY" not in "\n".join(str(vars(record)) for record in caplog.records)


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        ("url: 'https://x.example/${http:bearer-token}'", "write it into `headers`"),
        ("command: x, env: {A: '${http:bearer-token}'}", "write it into `headers`"),
        ("url: 'https://x.example', type: sse, headers: {A: '${http:bearer-token}'}", "leave `type` out"),
        (
            "url: 'https://x.example', sharing: global, headers: {A: '${http:bearer-token}'}",
            "sharing: account",
        ),
    ],
)
def test_where_no_part_of_a_request_can_go(definition: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        load(tmp_path, f"mcpServers: {{far: {{{definition}}}}}")


def test_the_example_of_the_documentation_is_good(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "passing-on.md").read_text(encoding="utf-8")
    example = page.split("```yaml\n", 1)[1].split("```", 1)[0]
    server = load(tmp_path, example).mcp_servers["tickets"]
    assert server.personal_headers == {"Authorization", "X-Team"}
