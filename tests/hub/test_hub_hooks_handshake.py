"""Hooks of what holds a connection together: the handshake of both eras and pings, over both transports."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.hub.hooks_world import Guard, load
from tests.peers.recording_mcp import recording
from tests.upstream.world import ENV, PEERS, oracle_over_http, until

from nanobot.app import App, open_app
from nanobot.errors import NotFound, UpstreamUnavailable
from nanobot.wire.call import Call, Caller
from nanobot.wire.rpc import Payload

pytestmark = pytest.mark.anyio

HELLO = {"legacy": "initialize", "modern": "server/discover"}
WAYS = [(era, transport) for era in HELLO for transport in ("stdio", "http")]
ways = pytest.mark.parametrize(("era", "transport"), WAYS)


@asynccontextmanager
async def hooked(
    home: Path, era: str, transport: str, guard: Guard, hooks: Mapping[str, Any]
) -> AsyncGenerator[App]:
    """The official SDK's server, `oracle`, with `hooks`; their tools are those of `guard`."""
    async with AsyncExitStack() as stack:
        if transport == "http":
            where: dict[str, Any] = {"url": stack.enter_context(oracle_over_http())}
        else:
            where = {
                "command": sys.executable,
                "args": [str(PEERS / "sdk_server.py"), "stdio"],
                "sandbox": "off",
            }
        servers = {"oracle": {**where, "protocol": era, "hooks": hooks}, "guard": {"command": "none"}}
        config = load(home, {"mcpServers": servers}, ENV)
        yield await stack.enter_async_context(open_app(config, extra_sources={"guard": guard.source}))


async def use(app: App, tool: str, server: str = "oracle", **arguments: Any) -> str:
    """The text of a result."""
    params = Payload.of({"name": tool, "arguments": arguments})
    result = (await app.hub.request(server, "tools/call", params, Call())).object()
    return result["content"][0]["text"]


def messages(guard: Guard) -> list[dict[str, Any]]:
    return [payload["message"] for _, payload in guard.seen]


@ways
async def test_hooks_see_the_handshake_in_both_directions(tmp_path: Path, era: str, transport: str) -> None:
    guard = Guard(look="no objection")
    async with hooked(tmp_path, era, transport, guard, {"*": "guard/look"}) as app:
        assert await use(app, "echo", text="hi") == "hi"
    asked = [message.get("method", "") for message in messages(guard)]
    expected = [HELLO[era], "", "notifications/initialized"] if era == "legacy" else [HELLO[era], ""]
    first = asked.index(HELLO[era])  # the call that needed the connection was there before
    assert asked[first : first + len(expected)] == expected
    request, answer = messages(guard)[first : first + 2]
    assert request["id"] == answer["id"]
    assert answer["result"]["capabilities"]["tools"]
    assert guard.seen[first][1]["context"] == {"server": "oracle", "session": "", "account": "", "client": {}}


@ways
async def test_a_changed_answer_is_what_the_server_is_taken_for(
    tmp_path: Path, era: str, transport: str
) -> None:
    def change(payload: dict[str, Any]) -> dict[str, Any]:
        result = payload["message"]["result"] | {"instructions": "Ask me nothing."}
        return {"mutated": True, "message": {"result": result}}

    guard = Guard(change=change)
    hooks = {f"{HELLO[era]}?direction=response": "guard/change"}
    async with hooked(tmp_path, era, transport, guard, hooks) as app:
        connected = await app.hub.introduction("oracle", Caller())
    assert connected is not None
    assert connected.instructions == "Ask me nothing."
    assert connected.era == era


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_changed_request_is_what_the_server_is_sent(tmp_path: Path, transport: str) -> None:
    def change(payload: dict[str, Any]) -> dict[str, Any]:
        params = payload["message"]["params"] | {"clientInfo": {"name": "somebody", "version": "0"}}
        return {"mutated": True, "message": {"method": "ping", "params": params}}

    guard = Guard(change=change)
    hooks = {"initialize?direction=request": "guard/change"}
    async with hooked(tmp_path, "legacy", transport, guard, hooks) as app:
        assert await use(app, "caller") == "somebody"


@ways
@pytest.mark.parametrize("direction", ["request", "response"])
async def test_a_denied_handshake_makes_the_server_fail_once(
    tmp_path: Path, era: str, transport: str, direction: str
) -> None:
    guard = Guard(check={"accept": False, "reason": "not on Sundays"})
    hooks = {f"{HELLO[era]}?direction={direction}": "guard/check"}
    async with hooked(tmp_path, era, transport, guard, hooks) as app:
        for _ in range(3):
            with pytest.raises(UpstreamUnavailable, match="not let through: not on Sundays"):
                await use(app, "echo", text="hi")
        state = app.upstreams["oracle"].state()
        assert state.state == "failed"
        assert "not on Sundays" in state.last_error
    assert len(guard.seen) == 1


@ways
async def test_a_hook_in_trouble_is_asked_again_later(tmp_path: Path, era: str, transport: str) -> None:
    def check(payload: dict[str, Any]) -> None:
        if len(guard.seen) == 1:
            raise NotFound("the file of rules is missing")

    guard = Guard(check=check)
    async with hooked(tmp_path, era, transport, guard, {HELLO[era]: "guard/check"}) as app:
        with pytest.raises(UpstreamUnavailable, match="hook 'guard/check' failed"):
            await use(app, "echo", text="hi")
        assert app.upstreams["oracle"].state().state == "backoff"
        await until(lambda: app.upstreams["oracle"].state().state == "ready")
        assert await use(app, "echo", text="hi") == "hi"


async def test_the_refusal_of_a_server_of_the_other_era_is_an_answer_like_any_other(tmp_path: Path) -> None:
    guard = Guard(look="no objection")
    hooks = {"server/discover": "guard/look", "initialize?direction=request": "guard/look"}
    with recording() as peer:
        servers = {"old": {"url": peer.url, "hooks": hooks}, "guard": {"command": "none"}}
        config = load(tmp_path, {"mcpServers": servers}, ENV)
        async with open_app(config, extra_sources={"guard": guard.source}) as app:
            assert await app.hub.introduction("old", Caller()) is not None
    asked, refusal, greeting = messages(guard)
    assert (asked["method"], greeting["method"]) == ("server/discover", "initialize")
    assert refusal["error"]["code"] == -32601


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_pings_of_a_server_pass_hooks(tmp_path: Path, transport: str) -> None:
    answers: list[Any] = [
        None,
        {"accept": False, "reason": "be quiet"},
        None,
        {"mutated": True, "message": {"result": {"_meta": {"seen": True}}}},
        None,
        {"mutated": True, "message": {"error": {"code": -32099, "message": "gone"}}},
        {"accept": False, "reason": "nobody home"},
    ]

    def answer(payload: dict[str, Any]) -> Any:
        return answers.pop(0)

    guard = Guard(look=answer)
    async with hooked(tmp_path, "legacy", transport, guard, {"ping": "guard/look"}) as app:
        said = [await use(app, "knock") for _ in range(4)]
    assert said[0].startswith("-32010 be quiet")
    assert "seen" in said[1]
    assert said[2] == "-32099 gone"
    assert said[3] == "-32010 nobody home"
    assert [message.get("method", "answer") for message in messages(guard)] == [
        *("ping", "answer") * 3,
        "ping",
    ]


async def test_a_tool_of_the_server_itself_is_asked_once_it_is_there(tmp_path: Path) -> None:
    """And two servers that look after one another do not wait for one another."""
    with recording() as one, recording() as two:
        servers = {
            "one": {"url": one.url, "hooks": {"*?direction=request": ["one/note", "two/note"]}},
            "two": {"url": two.url, "hooks": {"*?direction=request": "one/note"}},
        }
        async with open_app(load(tmp_path, {"mcpServers": servers}, ENV)) as app:
            for server in servers:
                assert await use(app, "note", server) == "noted"
    heard = [params["arguments"].get("message", {}).get("method", "") for _, params in one.calls]
    assert "tools/call" in heard
    assert "initialize" not in heard


async def test_a_notification_that_is_not_let_through_is_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guard = Guard(check={"accept": False, "reason": "no need"})
    probe = {"command": sys.executable, "args": [str(PEERS / "probe_server.py")], "sandbox": "off"}
    servers = {
        "probe": {**probe, "hooks": {"notifications/initialized": "guard/check"}},
        "guard": {"command": "none"},
    }
    caplog.set_level("INFO", "nanobot.wire.client")
    async with open_app(
        load(tmp_path, {"mcpServers": servers}, ENV), extra_sources={"guard": guard.source}
    ) as app:
        assert await app.hub.introduction("probe", Caller()) is not None
    assert [message["method"] for message in messages(guard)] == ["notifications/initialized"]
    assert "notification dropped" in caplog.text
