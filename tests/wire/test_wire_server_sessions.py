"""Sessions of legacy clients: parked, restored, shared between processes, deleted, and limited in number."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.wire.world import Client, TinyService, account_from_header, modern, rpc, serving, tool

from nanobot.config.model import SessionSettings
from nanobot.errors import StoreError
from nanobot.store import open_store
from nanobot.store.mcp_sessions import McpSessions
from nanobot.wire.home import Home
from nanobot.wire.session import Session
from nanobot.wire.sessions import Sessions

pytestmark = pytest.mark.anyio

SHORT = SessionSettings(idle_timeout_s=900)


@asynccontextmanager
async def host(
    home: Path, service: TinyService | None = None, **options: Any
) -> AsyncGenerator[tuple[Client, McpSessions]]:
    """An endpoint over the database in `home`, as one process of several would have it."""
    async with open_store(home / "nanobot.db") as store:
        shared = Home(
            sessions=store.mcp_sessions,
            key=store.sealer().derive("test"),
            process=store.processes.own,
            is_alive=store.processes.is_alive,
        )
        async with serving(service or TinyService(), home=shared, **options) as client:
            yield client, store.mcp_sessions


async def saved(sessions: McpSessions, id: str, is_so: Callable[[dict[str, Any]], bool] = bool) -> None:
    """Wait until the session is on record as it should be."""
    with anyio.fail_after(30):
        while (row := await sessions.find(id, "")) is None or not is_so(json.loads(row.state)):
            await anyio.lowlevel.checkpoint()


async def begin(client: Client) -> str:
    await client.initialize()
    assert (await client.post(rpc("notifications/initialized"))).status_code == 202
    return client.headers["mcp-session-id"]


async def delete(client: Client) -> int:
    return (await client.http.delete(client.url, headers=client.headers)).status_code


async def test_a_session_goes_on_in_a_new_process_with_all_it_had_asked_for(tmp_path: Path) -> None:
    async with host(tmp_path) as (client, _):
        id = await begin(client)
        await client.post(rpc("logging/setLevel", {"level": "error"}, id=2))
        await client.post(rpc("resources/subscribe", {"uri": "x:y"}, id=3))

    service = TinyService()
    async with host(tmp_path, service) as (client, _):
        client.headers["mcp-session-id"] = id
        async with client.events("GET") as events:
            assert events.response.status_code == 200
            with anyio.fail_after(30):
                while ("resources/subscribe", "x:y") not in service.followed:
                    await anyio.lowlevel.checkpoint()
            service.change("notifications/resources/updated", {"uri": "x:y"})
            assert (await events.message())["params"] == {"uri": "x:y"}
        async with client.events("POST", tool("report")) as events:
            heard = await events.rest()
        assert [m["params"]["level"] for m in heard if m.get("method") == "notifications/message"] == [
            "error"
        ]
        caller = service.callers[-1]
        assert (caller.session, caller.client["name"], caller.version) == (id, "t", "2025-11-25")


@dataclass
class Attendance:
    """Notes who is there."""

    news: list[tuple[str, str]]

    def began(self, account: str, session: str) -> None:
        self.news.append(("began", session))

    def ended(self, account: str, session: str, *, is_over: bool = True) -> None:
        self.news.append(("over" if is_over else "parked", session))

    def continuations(self, account: str, session: str) -> dict[str, Any]:
        return {"far": session}

    def continue_with(self, account: str, session: str, kept: Mapping[str, object]) -> None:
        self.news.append(("continues", str(kept["far"])))


async def test_a_session_is_parked_and_comes_back(tmp_path: Path) -> None:
    now, attendance = 0.0, Attendance([])
    options: dict[str, Any] = {"sessions": SHORT, "clock": lambda: now, "attendance": attendance}
    async with host(tmp_path, **options) as (client, _):
        id = await begin(client)
        now = 901
        assert (await client.post(tool("echo"))).status_code == 200
        assert (await client.post(tool("echo"))).status_code == 200
        assert attendance.news == [("began", id), ("parked", id), ("continues", id), ("began", id)]
        assert await delete(client) == 200
        assert attendance.news[-1] == ("over", id)


async def test_a_thread_that_a_client_names_with_each_request_is_looked_up_now_and_then() -> None:
    now, asked, threads = 0.0, list[str](), {"t"}

    async def has_thread(id: str, account: str) -> bool:
        asked.append(id)
        return id in threads

    async with serving(TinyService(), home=Home(has_thread=has_thread), clock=lambda: now) as client:
        named = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "echo"}
        call = modern("tools/call", {"name": "echo"}, **{"ai.nanobot/session": "t"})
        for _ in range(5):
            assert (await client.post(call, **named)).status_code == 200
        assert asked == ["t"]
        now = 1.5
        assert (await client.post(call, **named)).status_code == 200
        threads.clear()
        now = 3.0
        assert (await client.post(call, **named)).json()["error"]["message"] == "unknown session"
        assert asked == ["t"] * 3


async def test_a_client_that_only_listens_uses_its_session(tmp_path: Path) -> None:
    now = 0.0
    async with open_store(tmp_path / "nanobot.db") as store:
        settings, kept = SessionSettings(), store.mcp_sessions
        sessions = Sessions(
            settings, lambda: now, kept, None, restored=lambda one: None, parted=lambda one: None
        )
        session = Session("", lambda: now)
        sessions.add(session)
        sessions.use(session)
        await sessions.save()
        session.open_standalone().attach(prime=False)
        for hours in (1, 2, 3):
            now = hours * 3601.0
            await sessions.sweep()
            await sessions.save()
        row = await kept.find(session.id, "")
        assert row is not None
        assert row.revision == 4  # it was said to be in use, hour by hour


async def test_a_client_that_only_shook_hands_leaves_nothing(tmp_path: Path) -> None:
    async with host(tmp_path) as (client, sessions):
        silent = (await client.initialize()).headers["mcp-session-id"]
        used = (await client.initialize(mcp_session_id="")).headers["mcp-session-id"]
        await client.post(rpc("ping", id=1))
        await saved(sessions, used)
        assert await sessions.find(silent, "") is None


async def test_a_deleted_session_is_gone_everywhere(tmp_path: Path) -> None:
    now = 0.0
    async with host(tmp_path, clock=lambda: now) as (here, sessions), host(tmp_path) as (there, _):
        id = await begin(here)
        await saved(sessions, id)
        there.headers["mcp-session-id"] = id
        assert (await there.post(tool("echo"))).status_code == 200
        assert await delete(there) == 200
        assert await delete(there) == 404
        assert (await there.post(tool("echo"))).status_code == 404
        now = 2
        assert (await here.post(tool("echo"))).status_code == 404
        assert (await here.post(rpc("ping", id=9))).status_code == 404
        assert await sessions.find(id, "") is None


async def test_a_parked_session_can_be_deleted(tmp_path: Path) -> None:
    async with host(tmp_path) as (client, _):
        id = await begin(client)
    async with host(tmp_path) as (client, sessions):
        client.headers["mcp-session-id"] = id
        assert await delete(client) == 200
        assert await delete(client) == 404
        assert await sessions.find(id, "") is None


async def test_two_processes_that_change_a_session_lose_neither_change(tmp_path: Path) -> None:
    def is_whole(state: dict[str, Any]) -> bool:
        return state["level"] == 4 and state["subscriptions"] == ["x:y"]

    async with host(tmp_path) as (here, sessions), host(tmp_path) as (there, _):
        id = await begin(here)
        await saved(sessions, id)
        there.headers["mcp-session-id"] = id
        await there.post(rpc("ping", id=1))
        async with anyio.create_task_group() as group:
            group.start_soon(here.post, rpc("logging/setLevel", {"level": "error"}, id=2))
            group.start_soon(there.post, rpc("resources/subscribe", {"uri": "x:y"}, id=2))
        await saved(sessions, id, is_whole)


async def test_a_parked_session_of_another_account_does_not_exist(tmp_path: Path) -> None:
    async with host(tmp_path, wrap=account_from_header) as (client, _):
        client.headers["x-account"] = "ann"
        id = await begin(client)
    async with host(tmp_path, wrap=account_from_header) as (client, _):
        client.headers["mcp-session-id"] = id
        foreign = await client.post(rpc("ping", id=1), x_account="bob")
        unknown = await client.post(rpc("ping", id=1), x_account="bob", mcp_session_id=str(uuid.uuid4()))
        assert foreign.status_code == unknown.status_code == 404
        assert foreign.content == unknown.content
        headers = {**client.headers, "x-account": "bob"}
        assert (await client.http.delete(client.url, headers=headers)).status_code == 404
        assert (await client.post(rpc("ping", id=1), x_account="ann")).status_code == 200


async def test_what_was_read_before_a_restart_is_not_mistaken_for_something_of_today(tmp_path: Path) -> None:
    async with host(tmp_path) as (client, _):
        id = await begin(client)
    async with host(tmp_path) as (client, _):
        client.headers["mcp-session-id"] = id
        async with client.events("POST", tool("ask")) as events:
            question = await events.message()
            assert await client.post({"jsonrpc": "2.0", "id": 1, "result": {"action": "decline"}})
            await client.post({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}})
            [answer] = await events.rest()
        assert json.loads(answer["result"]["content"][0]["text"]) == {"action": "accept"}
        async with client.events("GET", last_event_id="1-1") as events:
            assert await events.next() == {"": "replay-lost"}
            assert await events.rest() == []
        async with client.events("GET", last_event_id="0-5") as events:
            first = await events.next()
            assert first["id"].startswith("0-0-")
            assert await events.next() == {"": "replay-lost"}


async def test_r4_a_call_that_waits_in_another_process_is_answered_there(tmp_path: Path) -> None:
    able: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "ask"}
    params: dict[str, Any] = {"name": "ask", "arguments": {}}
    async with host(tmp_path) as (there, _):
        async with host(tmp_path) as (here, _):
            asked = (await here.post(modern("tools/call", params, **able), **headers)).json()["result"]
            [question] = asked["inputRequests"]
            params["inputResponses"] = {question: {"action": "decline"}}
            params["requestState"] = asked["requestState"]
            retry = modern("tools/call", params, **able)
            misled = (await there.post(retry, **headers)).json()["error"]
            assert (misled["code"], misled["data"]) == (-32603, {"retryable": True})
            assert "another process" in misled["message"]
            assert "decline" in (await here.post(retry, **headers)).text
        lost = (await there.post(retry, **headers)).json()["error"]
        assert lost["code"] == -32602


async def test_r8_resting_sessions_make_room_and_come_back(tmp_path: Path) -> None:
    now = 0.0
    options: dict[str, Any] = {"sessions": SessionSettings(max_live=2), "clock": lambda: now}
    async with host(tmp_path, **options) as (client, _):
        first = await begin(client)
        await client.initialize(mcp_session_id="")  # and never comes back
        full = await client.initialize(mcp_session_id="")
        assert (full.status_code, full.headers["retry-after"]) == (503, "5")
        now = 11
        await begin(client)
        now = 22
        del client.headers["mcp-session-id"]
        await begin(client)
        assert (await client.post(tool("echo"), mcp_session_id=first)).status_code in (200, 503)
        now = 33
        assert (await client.post(tool("echo"), mcp_session_id=first)).status_code == 200


async def test_a_flood_of_handshakes_stays_bounded_and_leaves_no_rows(tmp_path: Path) -> None:
    now = 0.0
    options: dict[str, Any] = {"sessions": SessionSettings(max_live=50), "clock": lambda: now}
    async with host(tmp_path, **options) as (client, sessions):
        id = await begin(client)
        await saved(sessions, id)
        for _ in range(500):
            status = (await client.initialize(mcp_session_id="")).status_code
            assert status in (200, 503)
            now += 0.1
        await client.post(rpc("ping", id=1), mcp_session_id=id)
    with sqlite3.connect(tmp_path / "nanobot.db") as database:
        assert database.execute("SELECT id FROM mcp_sessions").fetchall() == [(id,)]
    database.close()


async def test_what_a_client_says_about_itself_is_bounded() -> None:
    async with serving(TinyService()) as client:
        params = {"protocolVersion": "2025-11-25", "capabilities": {"experimental": {"x": "y" * 70_000}}}
        answer = await client.post(rpc("initialize", params, id=1))
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32602)


class Broken(McpSessions):
    """The store of a disk that fails for a while."""

    fails = False
    refused: anyio.Event

    async def find(self, id: str, account: str) -> Any:
        self._check()
        return await super().find(id, account)

    async def save(self, rows: Any) -> list[bool]:
        self._check()
        return await super().save(rows)

    async def delete(self, id: str, account: str) -> bool:
        self._check()
        return await super().delete(id, account)

    def _check(self) -> None:
        if self.fails:
            self.refused.set()
            raise StoreError("The disk reports an error.")


async def test_while_the_store_is_down_living_sessions_go_on_and_nothing_is_lost(tmp_path: Path) -> None:
    async with open_store(tmp_path / "nanobot.db") as store:
        sessions = store.mcp_sessions
        sessions.__class__ = Broken
        assert isinstance(sessions, Broken)
        sessions.refused = anyio.Event()
        async with serving(TinyService(), home=Home(sessions=sessions, key=b"k" * 32)) as client:
            id = await begin(client)
            await saved(sessions, id)
            sessions.fails = True
            assert (await client.post(rpc("logging/setLevel", {"level": "error"}, id=2))).status_code == 200
            with anyio.fail_after(30):
                await sessions.refused.wait()
            down = await client.post(rpc("ping", id=3), mcp_session_id=str(uuid.uuid4()))
            assert (down.status_code, down.headers["retry-after"]) == (503, "5")
            assert down.json()["error"]["code"] == -32603
            assert await delete(client) == 503
            assert (await client.post(tool("echo"))).status_code == 200
            sessions.fails = False
            await saved(sessions, id, lambda state: state["level"] == 4)
            assert await delete(client) == 200
