"""Whom a server means that several clients use over one line, where nothing it sends says so."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.upstream.world import oracle, running, text_of, until, use

from nanobot.upstream.connection import Upstream
from nanobot.wire.call import Call, Caller
from nanobot.wire.rpc import Payload, RpcError

pytestmark = pytest.mark.anyio

Asked = Callable[[str, Payload], Awaitable[Payload]]
ABLE: dict[str, Any] = {"elicitation": {"form": {}}}
CLIENT = {"name": "t", "version": "1"}


class Person:
    """Gives the same name to whoever asks, and remembers that."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked = 0
        self.heard: list[str] = []

    async def ask(self, method: str, params: Payload) -> Payload:
        self.asked += 1
        return Payload.of({"action": "accept", "content": {"name": self.name}})

    def hear(self, method: str, params: Payload) -> None:
        self.heard.append(method)

    def call(self, caller: Caller, *, able: bool = True, thread: str | None = None) -> Call:
        return Call(caller=caller, ask=self.ask if able else None, notify=self.hear, thread=thread)


def legacy(session: str | None, account: str = "") -> Caller:
    return Caller(account=account, session=session, capabilities=ABLE, client=CLIENT)


def modern(account: str = "") -> Caller:
    return Caller(account=account, era="modern", capabilities=ABLE)


@asynccontextmanager
async def busy_for(call: Call, home: Path) -> AsyncGenerator[Upstream]:
    """An upstream that works on `call` as long as the block lasts."""
    begun = home / "call.started"
    async with running(oracle(sandbox=None)) as upstream, anyio.create_task_group() as group:
        group.start_soon(lambda: use(upstream, "wait_for_cancellation", call, path=str(home / "call")))
        await until(begun.exists)
        yield upstream
        group.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ((legacy("a"), True), (legacy("b"), True)),
        ((legacy("a"), True), (legacy("b"), False)),
        ((legacy("a", "ann"), True), (modern("bob"), False)),
        ((modern(), True), (modern(), True)),
        ((modern(), True), (modern(), False)),
        ((modern(), False), (legacy("b"), True)),
    ],
    ids=["sessions", "unaskable-session", "accounts", "modern", "unaskable-modern", "beside-unaskable"],
)
async def test_r9_a_question_that_may_be_anothers_is_put_to_nobody_and_the_server_is_told_why(
    theirs: tuple[Caller, bool], ours: tuple[Caller, bool], tmp_path: Path
) -> None:
    ann, bob = Person("Ann"), Person("Bob")
    async with busy_for(ann.call(theirs[0], able=theirs[1]), tmp_path) as upstream:
        with pytest.raises(RpcError, match="several clients use this connection"):
            await use(upstream, "greet", bob.call(ours[0], able=ours[1]))
    assert ann.asked == bob.asked == 0


@pytest.mark.parametrize(
    ("caller", "thread"),
    [(legacy("a"), None), (legacy(None), None), (Caller(capabilities=ABLE), "thread-1"), (modern(), None)],
    ids=["session", "line", "thread", "request"],
)
async def test_one_client_is_asked_however_many_calls_it_has_under_way(
    caller: Caller, thread: str | None, tmp_path: Path
) -> None:
    ann = Person("Ann")
    async with busy_for(ann.call(caller, thread=thread), tmp_path) as upstream:
        result = await use(upstream, "greet", ann.call(caller, thread=thread))
    assert text_of(result) == "Hello Ann"
    assert ann.asked == 1


async def test_r9_a_log_message_of_one_account_is_not_told_to_another(tmp_path: Path) -> None:
    ann, bob = Person("Ann"), Person("Bob")
    everybody: list[str] = []
    async with busy_for(ann.call(legacy("a", "ann")), tmp_path) as upstream:
        upstream.hear(lambda method, params: everybody.append(method))
        await use(upstream, "speak", bob.call(legacy("b", "bob")))
    assert ann.heard == bob.heard == everybody == []


async def test_log_messages_of_one_account_with_several_clients_go_to_all_of_them(tmp_path: Path) -> None:
    ann, other = Person("Ann"), Person("Ann again")
    everybody: list[str] = []
    async with busy_for(ann.call(legacy("a", "ann")), tmp_path) as upstream:
        upstream.hear(lambda method, params: everybody.append(method))
        await use(upstream, "speak", other.call(legacy("b", "ann")))
    assert everybody == ["notifications/message"]
    assert ann.heard == other.heard == []
