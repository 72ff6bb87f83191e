"""Serving over a two-way line, in memory and over the stdio of a real process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.upstream.world import pooled, until
from tests.wire.world import INFO, META, TinyService, modern, rpc, tool

from nanobot.config.model import ServerSettings
from nanobot.wire.memory import MemoryEnd, memory_pair
from nanobot.wire.server_duplex import serve_duplex

pytestmark = pytest.mark.anyio


class Line:
    """The client's end."""

    def __init__(self, end: MemoryEnd) -> None:
        self.end = end

    async def say(self, message: Any) -> None:
        await self.end.send(message if isinstance(message, bytes) else json.dumps(message).encode())

    async def hear(self) -> Any:
        with anyio.fail_after(10):
            line = await self.end.receive()
        assert b"\n" not in line
        return json.loads(line)

    async def ask(self, message: Any) -> Any:
        await self.say(message)
        return await self.hear()

    async def initialize(self) -> Any:
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t"}}
        return await self.ask(rpc("initialize", params, id=0))


@asynccontextmanager
async def line(service: TinyService, **options: Any) -> AsyncGenerator[Line]:
    ours, theirs = memory_pair()

    async def serve() -> None:
        await serve_duplex(ours, service, settings=ServerSettings(**options))

    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        yield Line(theirs)
        await theirs.aclose()
        await anyio.wait_all_tasks_blocked()
        await ours.aclose()


async def test_the_handshake_and_a_call() -> None:
    async with line(TinyService()) as client:
        early = await client.ask(tool("echo", id="early"))
        assert (early["id"], early["error"]["code"]) == ("early", -32600)
        assert (await client.ask(rpc("ping", id=9)))["result"] == {}
        result = (await client.initialize())["result"]
        assert (result["protocolVersion"], result["serverInfo"]) == ("2025-06-18", INFO)
        await client.say(rpc("notifications/initialized"))
        assert (await client.ask(tool("spread")))["result"]["odd"] == {"kept": [1, 2.5]}


async def test_a_client_is_there_for_as_long_as_its_line_is_open() -> None:
    ours, theirs = memory_pair()
    async with pooled() as pools, anyio.create_task_group() as group:
        group.start_soon(
            partial(serve_duplex, ours, TinyService(), settings=ServerSettings(), attendance=pools)
        )
        await Line(theirs).initialize()
        assert pools.is_open("", None)
        await theirs.aclose()
        await until(lambda: not pools.is_open("", None))
        await ours.aclose()


async def test_both_eras_share_a_line() -> None:
    async with line(TinyService()) as client:
        listed = await client.ask(modern("tools/list", id="m"))
        assert listed["result"]["resultType"] == "complete"
        await client.initialize()
        assert "resultType" not in (await client.ask(rpc("tools/list", id=1)))["result"]
        assert (await client.ask(modern("ping")))["error"]["code"] == -32601
        future = {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}
        error = (await client.ask(modern("tools/list", None, **future)))["error"]
        assert (error["code"], error["data"]["requested"]) == (-32022, "2099-01-01")
        lacking = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
        assert (await client.ask(rpc("tools/list", lacking, id=3)))["error"]["code"] == -32602
        shapeless = {"_meta": {**META, "io.modelcontextprotocol/protocolVersion": 5}}
        assert (await client.ask(rpc("tools/list", shapeless, id=4)))["error"]["code"] == -32602


async def test_a_slow_call_does_not_hold_up_others_and_can_be_cancelled_without_an_answer() -> None:
    service = TinyService()
    async with line(service) as client:
        await client.initialize()
        await client.say(tool("wait", id="slow"))
        await service.entered.wait()
        assert (await client.ask(tool("echo", id="fast")))["id"] == "fast"
        assert (await client.ask(tool("echo", id="slow")))["error"]["code"] == -32600
        await client.say(rpc("notifications/cancelled", {"requestId": "slow", "reason": "bored"}))
        await service.was_cancelled.wait()
        assert (await client.ask(rpc("ping", id="next")))["id"] == "next"


async def test_news_and_questions_travel_before_the_answer() -> None:
    async with line(TinyService()) as client:
        await client.initialize()
        await client.say(tool("report", id=1, meta={"progressToken": 7}))
        messages = [await client.hear() for _ in range(6)]
        assert [m["params"]["progress"] for m in messages[:3]] == [1, 2, 5]
        assert {m["params"]["progressToken"] for m in messages[:3]} == {7}
        assert messages[-1]["id"] == 1
        question = await client.ask(tool("ask", id=2))
        await client.say({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "cancel"}})
        assert json.loads((await client.hear())["result"]["content"][0]["text"]) == {"action": "cancel"}


async def test_changes_are_told_after_the_handshake_and_to_listeners() -> None:
    service = TinyService()
    async with line(service) as client:
        await anyio.wait_all_tasks_blocked()
        service.change("notifications/tools/list_changed")
        await client.initialize()
        service.change("notifications/tools/list_changed")
        assert (await client.hear())["method"] == "notifications/tools/list_changed"
        await client.ask(
            modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="s")
        )
        service.change("notifications/tools/list_changed")
        both = [await client.hear(), await client.hear()]
        marks = [m["params"].get("_meta", {}).get("io.modelcontextprotocol/subscriptionId") for m in both]
        assert sorted(marks, key=str) == [None, "s"]


async def test_more_requests_than_allowed_are_refused() -> None:
    service = TinyService()
    async with line(service, max_concurrent_requests=2) as client:
        await client.initialize()
        for id in (1, 2):
            await client.say(tool("wait", id=id))
        assert (await client.ask(tool("echo", id=3)))["error"]["code"] == -32000
        service.release.set()
        assert {(await client.hear())["id"] for _ in range(2)} == {1, 2}


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (b"garbage", -32700),
        (b'"\xff"', -32600),
        (b"[]", -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 5000, -32700),
    ],
)
async def test_a_bad_line_is_answered_and_the_line_goes_on(said: bytes, code: int) -> None:
    async with line(TinyService()) as client:
        answer = await client.ask(said)
        assert (answer["id"], answer["error"]["code"]) == (None, code)
        assert (await client.ask(rpc("ping", id=1)))["result"] == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
METHODS = st.sampled_from(
    (
        "initialize",
        "logging/setLevel",
        "nobody/knows",
        "notifications/cancelled",
        "ping",
        "resources/subscribe",
        "server/discover",
        "subscriptions/listen",
        "tools/call",
    )
)
MEMBERS = st.sampled_from(("_meta", "level", "name", "notifications", "requestId", "uri"))
ENVELOPES = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0")},
    optional={
        "id": JSON,
        "method": METHODS,
        "params": JSON | st.dictionaries(MEMBERS, JSON),
        "result": JSON,
        "error": JSON,
    },
)
LINES = (
    st.binary(max_size=200)
    | JSON.map(lambda v: json.dumps(v).encode())
    | ENVELOPES.map(lambda v: json.dumps(v).encode())
)


@given(lines=st.lists(LINES, max_size=20))
@settings(max_examples=100, deadline=None)
def test_r05_no_sequence_of_lines_ends_the_connection(lines: list[bytes]) -> None:
    async def talk() -> None:
        async with line(TinyService()) as client:
            for said in lines:
                await client.say(said.replace(b"\n", b" "))
            await client.say(rpc("ping", id="still there"))
            while (await client.hear()).get("id") != "still there":
                pass

    anyio.run(talk)


SERVER = """
import anyio
from nanobot.config.model import ServerSettings
from nanobot.wire.server_duplex import serve_duplex
from nanobot.wire.stdio import own_stdio
from tests.wire.world import TinyService

class Chatty(TinyService):
    async def request(self, method, params, call):
        print("a stray print")
        return await super().request(method, params, call)

async def main():
    async with own_stdio(10_000) as stdio:
        await serve_duplex(stdio, Chatty(), settings=ServerSettings())
anyio.run(main)
print("over")
"""


async def test_over_stdio_long_lines_are_skipped_and_stray_prints_go_to_stderr() -> None:
    said = [modern("tools/list", id=1), "x" * 20_000, modern("tools/call", {"name": "echo"}, id=2)]
    given_ = "\r\n".join(m if isinstance(m, str) else json.dumps(m) for m in said)  # no newline at the end
    ended = await anyio.run_process([sys.executable, "-c", SERVER], input=given_.encode(), check=True)
    *answers, over = ended.stdout.decode().splitlines()
    assert over == "over"
    by_id = {answer["id"]: answer for answer in map(json.loads, answers)}
    assert set(by_id) == {1, 2, None}
    assert by_id[None]["error"]["message"] == "a message is longer than 10000 bytes"
    assert ended.stderr.decode().count("a stray print") == 2


def test_a_stdio_server_ends_with_its_client_although_stdin_is_a_file() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SERVER], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=True
    )
    assert ended.stdout == b"over\n"
