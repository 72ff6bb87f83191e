"""The client of a two-way line, against a peer that the test plays itself."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanobot.aio import task_group
from nanobot.wire.call import Call, Caller
from nanobot.wire.client import ConnectionLost, Hello, NoAnswer
from nanobot.wire.client_duplex import DuplexConnection, open_duplex
from nanobot.wire.duplex import MessageTooLong
from nanobot.wire.lines import LineSplitter
from nanobot.wire.memory import MemoryEnd, memory_pair
from nanobot.wire.rpc import Payload, RpcError

ANSWERS = Caller(capabilities={"elicitation": {}, "sampling": {}, "roots": {}})

pytestmark = pytest.mark.anyio

CALL = Payload.of({"name": "work", "arguments": {"a": [1, 2.50, "ü"]}, "extra": None})


class Peer:
    """The server's end of the line, in the test's hand."""

    def __init__(self, end: MemoryEnd) -> None:
        self.end = end

    async def hears(self) -> dict[str, Any]:
        with anyio.fail_after(5):
            return json.loads(await self.end.receive())

    async def says(self, message: Any) -> None:
        await self.end.send(message if isinstance(message, bytes) else json.dumps(message).encode())

    async def answers(self, request: dict[str, Any], result: Any) -> None:
        await self.says({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def tells(self, method: str, params: Any) -> None:
        await self.says({"jsonrpc": "2.0", "method": method, "params": params})


@asynccontextmanager
async def connected(
    heard: Callable[[str, Payload], None] = lambda method, params: None,
) -> AsyncGenerator[tuple[DuplexConnection, Peer]]:
    ours, theirs = memory_pair()
    peer = Peer(theirs)

    async def greet() -> None:
        initialize = await peer.hears()
        assert initialize["params"]["protocolVersion"] == "2025-11-25"
        await peer.answers(initialize, {"protocolVersion": "2025-06-18", "capabilities": {}})

    async with task_group() as group:
        group.start_soon(greet)
        async with open_duplex(ours, Hello(version="1"), heard) as connection:
            assert (await peer.hears())["method"] == "notifications/initialized"
            yield connection, peer
    await theirs.aclose()


class Asking:
    """A request that runs beside the test."""

    def __init__(self, connection: DuplexConnection, call: Call | None = None, timeout_s: float = 20) -> None:
        self.outcome: Any = None
        self._parts = connection, call or Call(), timeout_s
        self.done = anyio.Event()
        self.scope = anyio.CancelScope()

    async def run(self) -> None:
        connection, call, timeout_s = self._parts
        try:
            with self.scope:
                result = await connection.request("tools/call", CALL, call, timeout_s=timeout_s)
                self.outcome = result.value
        except (RpcError, NoAnswer, ConnectionLost) as e:
            self.outcome = e
        finally:
            self.done.set()


async def test_params_keep_every_member_and_answers_find_their_request() -> None:
    async with connected() as (connection, peer), task_group() as group:
        asking = [Asking(connection) for _ in range(20)]
        for one in asking:
            group.start_soon(one.run)
        requests = [await peer.hears() for _ in asking]
        assert all(request["params"] == CALL.value for request in requests)
        random.Random(1).shuffle(requests)
        for request in requests:
            await peer.answers(request, {"for": request["id"]})
        for one in asking:
            await one.done.wait()
        assert sorted(one.outcome["for"] for one in asking) == sorted(request["id"] for request in requests)


async def test_an_answer_counts_once_and_only_under_the_very_id() -> None:
    async with connected() as (connection, peer), task_group() as group:
        asking = Asking(connection)
        group.start_soon(asking.run)
        request = await peer.hears()
        for id in (str(request["id"]), 99, 1.5, None, {"x": 1}):
            await peer.says({"jsonrpc": "2.0", "id": id, "result": "wrong"})
        await peer.says({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "what?"}})
        await peer.answers(request, "right")
        await peer.answers(request, "again")
        await asking.done.wait()
        assert asking.outcome == "right"


@pytest.mark.parametrize(
    ("said", "read"),
    [
        (rb'{"text":"cut \ud83d"}', {"text": "cut \ufffd"}),
        (rb'{"text":"\ud83d\ude00 \\ud83d \ude00\ud83d\n"}', {"text": "😀 \\ud83d \ufffd\ufffd\n"}),
        (b'{"text":"bad \xff byte"}', {"text": "bad \ufffd byte"}),
        (b'{"x":[NaN,-Infinity,"NaN \\"NaN"]}', {"x": [None, None, 'NaN "NaN']}),
    ],
)
async def test_a_result_with_something_odd_in_it_arrives_as_good_json(said: bytes, read: Any) -> None:
    async with connected() as (connection, peer), task_group() as group:
        asking = Asking(connection)
        group.start_soon(asking.run)
        request = await peer.hears()
        await peer.says(b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (request["id"], said))
        with anyio.fail_after(5):
            await asking.done.wait()
        assert asking.outcome == read


async def test_a_byte_order_mark_before_the_first_line_is_no_obstacle() -> None:
    ours, theirs = memory_pair()
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}}

    async def greet() -> None:
        request = json.loads(await theirs.receive())
        answer = {"jsonrpc": "2.0", "id": request["id"], "result": hello}
        await theirs.send(b"\xef\xbb\xbf" + json.dumps(answer).encode())

    async with task_group() as group:
        group.start_soon(greet)
        with anyio.fail_after(5):
            async with open_duplex(ours, Hello(version="1"), lambda method, params: None) as connection:
                assert connection.connected.version == "2025-06-18"
    await theirs.aclose()


@pytest.mark.parametrize(
    "answer",
    [
        b'{"jsonrpc":"2.0","id":%d,"result":{"content":[',
        b'{ "id" : %d , "result": {,} }',
        b'{"result":{,},"jsonrpc":"2.0","id":%d}',
        b'{"jsonrpc":"2.0","id":%d,"error":"boom"}',
        b'{"jsonrpc":"2.0","id":%d}',
        b'{"jsonrpc":"2.0","id":%d,"result":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
async def test_an_answer_that_cannot_be_read_fails_its_request_at_once(answer: bytes) -> None:
    async with connected() as (connection, peer), task_group() as group:
        asking = Asking(connection)
        group.start_soon(asking.run)
        id = (await peer.hears())["id"]
        await peer.says(b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{,}}' % id)  # an echo
        await peer.says(b'debug: {"jsonrpc":"2.0","id":%d,"result":{}}' % id)
        await anyio.wait_all_tasks_blocked()
        assert asking.outcome is None
        await peer.says(answer % id)
        with anyio.fail_after(5):
            await asking.done.wait()
        assert isinstance(asking.outcome, RpcError)
        assert "the server's answer is no message" in str(asking.outcome)


async def test_what_belongs_to_another_hop_is_taken_out_of_meta() -> None:
    meta = {"progressToken": "theirs", "io.modelcontextprotocol/x": 1, "own": {"kept": True}}
    async with connected() as (connection, peer), task_group() as group:
        asking = Asking(connection, Call(meta=meta, wants_progress=True))
        group.start_soon(asking.run)
        request = await peer.hears()
        assert request["params"]["_meta"] == {"own": {"kept": True}, "progressToken": request["id"]}
        await peer.answers(request, {})


async def test_progress_reaches_only_the_call_that_it_is_about() -> None:
    heard: dict[str, list[Any]] = {"one": [], "two": []}

    def listener(name: str) -> Call:
        return Call(
            wants_progress=True, notify=lambda method, params: heard[name].append(params.value["progress"])
        )

    async with connected() as (connection, peer), task_group() as group:
        asking = [Asking(connection, listener(name)) for name in heard]
        requests: list[dict[str, Any]] = []
        for one in asking:
            group.start_soon(one.run)
            requests.append(await peer.hears())
        for token, value in ((requests[0]["id"], 1), (requests[1]["id"], 2), ("x", 3), (None, 4), ([], 5)):
            await peer.tells("notifications/progress", {"progressToken": token, "progress": value})
        await peer.says(b'{"jsonrpc":"2.0","method":"notifications/progress","params":[]}')
        for request in requests:
            await peer.answers(request, {})
    assert heard == {"one": [1], "two": [2]}


async def test_a_cancelled_request_is_withdrawn_by_its_id() -> None:
    async with connected() as (connection, peer), task_group() as group:
        asking = Asking(connection)
        group.start_soon(asking.run)
        request = await peer.hears()
        asking.scope.cancel()
        withdrawal = await peer.hears()
        assert withdrawal["method"] == "notifications/cancelled"
        assert withdrawal["params"]["requestId"] == request["id"]
        await peer.answers(request, "too late")
        assert (await answered(connection, peer)) == "alive"


async def test_a_request_without_answer_ends_after_its_time_and_is_withdrawn() -> None:
    async with connected() as (connection, peer), task_group() as group:
        asking = Asking(connection, timeout_s=0.05)
        group.start_soon(asking.run)
        await peer.hears()
        assert (await peer.hears())["method"] == "notifications/cancelled"
        await asking.done.wait()
        assert isinstance(asking.outcome, NoAnswer)


async def test_a_question_stops_the_clock_of_the_request_it_belongs_to() -> None:
    asked, go_on = anyio.Event(), anyio.Event()

    async def ask(method: str, params: Payload) -> Payload:
        asked.set()
        await go_on.wait()
        return Payload.of({"roots": [{"uri": "file:///x"}]})

    async with connected() as (connection, peer), task_group() as group:
        asking = Asking(connection, Call(ask=ask, caller=ANSWERS), timeout_s=0.2)
        group.start_soon(asking.run)
        request = await peer.hears()
        await peer.says({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
        await asked.wait()
        await anyio.sleep(0.4)  # longer than the request may take
        go_on.set()
        assert (await peer.hears())["result"] == {"roots": [{"uri": "file:///x"}]}
        await peer.answers(request, "in time")
        await asking.done.wait()
        assert asking.outcome == "in time"


async def test_questions_that_belong_to_no_one_request_are_answered_without_asking_anybody() -> None:
    async with connected() as (_, peer):
        for method, expected in (
            ("ping", {"result": {}}),
            ("roots/list", {"result": {"roots": []}}),
            ("elicitation/create", {"result": {"action": "cancel"}}),
            ("sampling/createMessage", {"error": -32601}),
            ("tasks/list", {"error": -32601}),
        ):
            await peer.says({"jsonrpc": "2.0", "id": method, "method": method, "params": {}})
            reply = await peer.hears()
            assert reply["id"] == method
            if "error" in reply:
                reply["error"] = reply["error"]["code"]
            assert expected.items() <= reply.items()


async def test_a_refused_question_is_told_with_the_refusal_and_a_fault_with_none_of_its_text() -> None:
    async def refuse(method: str, params: Payload) -> Payload:
        raise RpcError(-32001, "not now") if params.value else ValueError("inner detail")

    async with connected() as (connection, peer), task_group() as group:
        asking = Asking(connection, Call(ask=refuse, caller=ANSWERS))
        group.start_soon(asking.run)
        request = await peer.hears()
        await peer.says({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {"a": 1}})
        assert (await peer.hears())["error"] == {"code": -32001, "message": "not now"}
        await peer.says({"jsonrpc": "2.0", "id": 2, "method": "sampling/createMessage"})
        assert "inner" not in json.dumps(await peer.hears())
        await peer.answers(request, "done")
        await asking.done.wait()
        assert asking.outcome == "done"


async def test_the_end_of_the_line_fails_what_waits_and_what_comes_later() -> None:
    async with connected() as (connection, peer), task_group() as group:
        asking = Asking(connection)
        group.start_soon(asking.run)
        await peer.hears()
        await peer.end.aclose()
        await asking.done.wait()
        assert isinstance(asking.outcome, ConnectionLost)
        assert asking.outcome.maybe_sent
        assert await connection.lost() == "the connection ended"
        assert not connection.is_alive
        with pytest.raises(ConnectionLost) as later:
            await connection.request("tools/call", CALL, Call(), timeout_s=5)
        assert not later.value.maybe_sent


async def test_a_peer_that_does_not_read_holds_up_only_whoever_writes_and_only_for_their_time() -> None:
    async with connected() as (connection, peer), task_group() as group:
        asking = [Asking(connection, timeout_s=0.2) for _ in range(200)]  # more than the line holds
        for one in asking:
            group.start_soon(one.run)
        for one in asking:
            await one.done.wait()
        assert all(isinstance(one.outcome, NoAnswer) for one in asking)
        group.start_soon(drain, peer)
        await peer.says({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        group.cancel_scope.cancel()


async def drain(peer: Peer) -> None:
    while True:
        await peer.hears()


async def test_two_hundred_callers_with_random_news_never_get_what_is_for_another() -> None:
    async with connected() as (connection, peer), task_group() as group:

        async def serve() -> None:
            waiting: list[dict[str, Any]] = []
            chance = random.Random(7)
            for _ in range(200):
                waiting.append(await peer.hears())
                if len(waiting) > 20:
                    await settle(waiting.pop(chance.randrange(len(waiting))))
            for request in waiting:
                await settle(request)

        async def settle(request: dict[str, Any]) -> None:
            who = request["params"]["_meta"]["who"]
            token = request["params"]["_meta"]["progressToken"]
            await peer.tells("notifications/progress", {"progressToken": token, "progress": who})
            await peer.answers(request, {"who": who})

        async def one(who: int) -> None:
            news: list[Any] = []
            call = Call(
                meta={"who": who},
                wants_progress=True,
                notify=lambda method, params: news.append(params.value["progress"]),
            )
            result = await connection.request("tools/call", CALL, call, timeout_s=20)
            assert (news, result.value) == ([who], {"who": who})

        group.start_soon(serve)
        for who in range(200):
            group.start_soon(one, who)


GARBAGE = st.one_of(
    st.binary(max_size=40),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "code", "message"]),
                inner | st.sampled_from(["2.0", "ping", "notifications/progress", "roots/list"]),
                max_size=5,
            )
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode()),
)


@given(lines=st.lists(GARBAGE, max_size=30))
@settings(max_examples=150, deadline=None)
async def test_r5_no_line_of_a_peer_ends_the_connection(lines: list[bytes]) -> None:
    async with connected() as (connection, peer), task_group() as group:
        group.start_soon(speak, peer, lines)
        asking = Asking(connection)
        group.start_soon(asking.run)
        while (request := await peer.hears()).get("method") != "tools/call":
            pass
        await peer.answers(request, "alive")
        await asking.done.wait()
        assert asking.outcome is not None  # by chance a line may have been an answer


async def speak(peer: Peer, lines: list[bytes]) -> None:
    for line in lines:
        await peer.says(line)


async def answered(connection: DuplexConnection, peer: Peer) -> Any:
    async with task_group() as group:
        asking = Asking(connection)
        group.start_soon(asking.run)
        await peer.answers(await peer.hears(), "alive")
        await asking.done.wait()
    return asking.outcome


@given(
    lines=st.lists(st.binary(min_size=1, max_size=30).filter(lambda b: b"\n" not in b), max_size=8),
    cuts=st.lists(st.integers(0, 250), max_size=10),
)
def test_lines_come_out_whole_wherever_the_bytes_are_cut(lines: list[bytes], cuts: list[int]) -> None:
    text = b"".join(line + b"\n" for line in lines)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    splitter = LineSplitter(20)
    found: list[bytes | None] = []
    for start, end in pairwise(places):
        splitter.feed(text[start:end])
    while True:
        try:
            line = splitter.next()
        except MessageTooLong:
            found.append(None)
            continue
        if line is None:
            break
        found.append(line)
    short = [line.removesuffix(b"\r") if len(line) <= 20 else None for line in lines]
    assert found == [line for line in short if line != b""]
