"""The official SDK's server, in both eras, over a pipe and over HTTP: everything that works, works."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.upstream.world import oracle, oracle_over_http, running, text_of, until, use

from nanobot.aio import task_group
from nanobot.config.model import McpServer, SandboxSettings
from nanobot.wire.call import Call, Caller
from nanobot.wire.rpc import Payload, RpcError

pytestmark = pytest.mark.anyio

TRANSPORTS = ("stdio", "streams", "json")


@pytest.fixture(scope="module")
def urls() -> Generator[dict[str, str]]:
    """Servers that answer with event streams and with JSON alone."""
    with oracle_over_http() as streams, oracle_over_http("json") as json:
        yield {"streams": streams, "json": json}


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def server(transport: str, era: Any, urls: dict[str, str]) -> McpServer:
    if transport == "stdio":
        return oracle(protocol=era)
    return McpServer(name="oracle", url=urls[transport], protocol=era)


async def test_the_handshake_tells_who_the_server_is(server: McpServer, era: str) -> None:
    async with running(server) as upstream:
        connected = await upstream.ready()
        assert (connected.era, connected.version) == (
            era,
            "2025-11-25" if era == "legacy" else "2026-07-28",
        )
        assert connected.server_info["name"] == "oracle"
        assert connected.server_info["version"] == "7.0"
        assert connected.instructions == "Ask me anything."
        assert upstream.state.state == "ready"


async def test_the_era_is_found_out_by_itself(urls: dict[str, str]) -> None:
    """HTTP is probed for the modern era; on a pipe the handshake comes first and is accepted."""
    async with running(McpServer(name="oracle", url=urls["streams"])) as upstream:
        assert (await upstream.ready()).era == "modern"
    async with running(oracle()) as upstream:
        assert (await upstream.ready()).era == "legacy"


async def test_everything_listed_can_be_used(server: McpServer) -> None:
    async with running(server) as upstream:
        tools = {entry.key: entry.definition.object() for entry in await upstream.listing("tools")}
        assert tools["echo"]["inputSchema"]["required"] == ["text"]
        assert [entry.key for entry in await upstream.listing("prompts")] == ["hello"]
        assert [entry.key for entry in await upstream.listing("resources")] == ["note://one"]
        assert await upstream.listing("templates") == []
        assert text_of(await use(upstream, "echo", text="größer 👍")) == "größer 👍"
        prompt = await upstream.request(
            "prompts/get", Payload.of({"name": "hello", "arguments": {"name": "Ö"}}), Call()
        )
        assert prompt.object()["messages"][0]["content"]["text"] == "Say hello to Ö"
        note = await upstream.request("resources/read", Payload.of({"uri": "note://one"}), Call())
        assert note.object()["contents"][0]["text"] == "remember"


async def test_a_refusal_is_the_servers_own(server: McpServer) -> None:
    async with running(server) as upstream:
        with pytest.raises(RpcError) as refusal:
            await upstream.request("prompts/get", Payload.of({"name": "no such prompt"}), Call())
        assert refusal.value.rpc_code in (-32602, -32603, 0)


async def test_fifty_calls_at_once_each_get_their_own_answer(server: McpServer) -> None:
    async with running(server) as upstream, task_group() as group:

        async def one(n: int) -> None:
            assert text_of(await use(upstream, "echo", text=f"call {n}")) == f"call {n}"

        for n in range(50):
            group.start_soon(one, n)


async def test_progress_reaches_the_call_without_our_token(server: McpServer, transport: str) -> None:
    heard: list[tuple[str, Any]] = []

    def notify(method: str, params: Payload) -> None:
        heard.append((method, params.value))

    async with running(server) as upstream:
        result = await use(upstream, "steps", Call(wants_progress=True, notify=notify), count=3)
    assert text_of(result) == "done"
    if transport != "json":  # which leaves no room for anything beside the answer
        assert heard == [
            ("notifications/progress", {"progress": n, "total": 3, "message": f"step {n}"}) for n in (1, 2, 3)
        ]


async def test_a_log_entry_reaches_the_call(server: McpServer, transport: str, era: str) -> None:
    heard: list[str] = []
    async with running(server) as upstream:
        call = Call(notify=lambda method, params: heard.append(f"{method} {params.value['data']['data']}"))
        await use(upstream, "speak", call)
    if transport != "json" and era == "legacy":  # modern servers log to those who ask for it
        assert heard == ["notifications/message a word"]


def person(answer: dict[str, Any]) -> Call:
    """A call for somebody of the legacy era who can be asked."""

    async def ask(method: str, params: Payload) -> Payload:
        assert method == "elicitation/create"
        assert params.value["message"] == "Who are you?"
        return Payload.of(answer)

    return Call(ask=ask, caller=Caller(capabilities={"elicitation": {"form": {}}}))


async def test_a_question_is_put_to_whoever_called_in_the_way_of_either_era(
    server: McpServer, transport: str, era: str
) -> None:
    if (transport, era) == ("json", "legacy"):
        pytest.skip("plain JSON leaves no room for a question")
    ada = {"action": "accept", "content": {"name": "Ada"}}
    async with running(server) as upstream:
        assert text_of(await use(upstream, "greet", person(ada))) == "Hello Ada"
        assert text_of(await use(upstream, "greet", person({"action": "decline"}))) == "no name: decline"


async def test_a_caller_of_the_modern_era_gets_a_modern_question_as_it_is(urls: dict[str, str]) -> None:
    caller = Caller(era="modern", capabilities={"elicitation": {"form": {}}})
    async with running(McpServer(name="o", url=urls["streams"])) as upstream:
        result = await use(upstream, "greet", Call(caller=caller))
    assert result["resultType"] == "input_required"


async def test_where_nobody_can_be_asked_a_question_is_cancelled(urls: dict[str, str]) -> None:
    for server in (oracle(), McpServer(name="o", url=urls["streams"], protocol="legacy")):
        async with running(server) as upstream:
            assert text_of(await use(upstream, "greet")) == "no name: cancel"


async def test_a_cancelled_call_is_cancelled_in_the_server(
    server: McpServer, transport: str, era: str, tmp_path: Path
) -> None:
    if (transport, era) == ("json", "modern"):
        pytest.skip("the SDK does not see that a plain JSON request was given up")
    server = replace(server, sandbox=SandboxSettings(writable=(str(tmp_path),)))
    ended = tmp_path / "ended"
    async with running(server) as upstream, task_group() as group:

        async def call() -> None:
            await use(upstream, "wait_for_cancellation", path=str(ended))

        group.start_soon(call)
        await until(ended.with_name("ended.started").exists)
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await until(ended.exists)


async def test_a_changed_list_is_heard_of(transport: str, era: Any, urls: dict[str, str]) -> None:
    with oracle_over_http(*(["json"] if transport == "json" else [])) as url:  # for this test alone
        server = oracle(protocol=era) if transport == "stdio" else McpServer(name="o", url=url, protocol=era)
        changed = anyio.Event()

        def watch(kind: str) -> None:
            if kind == "tools":
                changed.set()

        async with running(server) as upstream:
            upstream.watch(watch)
            with anyio.fail_after(10):
                while not changed.is_set():  # what happens before our stream is open is not heard
                    await use(upstream, "grow")
                    with anyio.move_on_after(0.1):
                        await changed.wait()
            assert "grown" in [entry.key for entry in await upstream.listing("tools")]


async def test_an_argument_that_is_marked_for_it_travels_in_a_header_too(urls: dict[str, str]) -> None:
    server = McpServer(name="o", url=urls["streams"], protocol="modern")
    async with running(server) as upstream:
        await upstream.listing("tools")
        for region in ("eu", "Österreich", " x "):
            assert text_of(await use(upstream, "locate", region=region)) == region


async def test_a_crash_of_the_server_costs_the_call_and_one_attempt(urls: dict[str, str]) -> None:
    async with running(oracle()) as upstream:
        with pytest.raises(Exception, match="exited with status 3"):
            await use(upstream, "die")
        assert text_of(await use(upstream, "echo", text="again")) == "again"
        assert upstream.state.restarts == 1
