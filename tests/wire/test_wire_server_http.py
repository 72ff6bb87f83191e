"""The endpoint's answer to each kind of request, as raw HTTP sees it."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from tests.wire.world import (
    INFO,
    TinyService,
    account_from_header,
    modern,
    rpc,
    serving,
    tool,
)

from nanobot.config.model import ServerSettings, SessionSettings

pytestmark = pytest.mark.anyio

MODERN = {"mcp_protocol_version": "2026-07-28"}
READ = {"mcp_method": "resources/read", "mcp_name": "x:y", **MODERN}


def nested(depth: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"{", {}, 400, -32700),
        (b"\xff\xfe", {}, 400, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xff"}}', {}, 400, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xed\xa0\x80"}}', {}, 400, -32700),
        (b"[]", {}, 400, -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', {}, 400, -32600),
        (b"7", {}, 400, -32600),
        (b'{"id":1,"method":"ping"}', {}, 400, -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', {}, 400, -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', {}, 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 300 + b"]" * 300 + b"}", {}, 400, -32600),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 9000 + b"]" * 9000 + b"}",
            {},
            400,
            -32700,
        ),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', {}, 400, -32602),
        (rpc("ping", id=1), {"content_type": "text/plain"}, 415, -32600),
        (rpc("ping", id=1), {"content_type": ""}, 415, -32600),
        (rpc("ping", id=1), {"accept": "text/html"}, 406, -32600),
        (rpc("ping", id=1), {"accept": "application/json;q=0"}, 406, -32600),
        (b" " * 3000 + b"{}", {}, 413, -32600),
        (rpc("ping", id=1), {}, 400, -32600),
        (rpc("notifications/initialized"), {}, 400, -32600),
        (rpc("ping", id=1), {"mcp_session_id": str(uuid.uuid4())}, 404, -32600),
        (rpc("ping", id=1), {"mcp_session_id": "../../etc/passwd"}, 404, -32600),
        (rpc("initialize", {}, id=1), {"mcp_session_id": str(uuid.uuid4())}, 404, -32600),
        (rpc("ping", id=1), {"mcp_protocol_version": "2099-01-01"}, 400, -32022),
        (rpc("initialize", {"protocolVersion": 7}, id=1), {}, 200, -32602),
    ],
)
async def test_what_cannot_be_served_is_refused_with_a_reason(
    body: Any, headers: dict[str, str], status: int, code: int
) -> None:
    async with serving(TinyService(), settings=ServerSettings(max_body_bytes=30_000)) as client:
        body = body * 20 if status == 413 else body
        answer = await client.post(body, **headers)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["error"]["code"] == code
        assert "mcp-session-id" not in answer.headers


async def test_a_refusal_tells_older_clients_too() -> None:
    async with serving(TinyService()) as client:
        answer = (await client.post(rpc("ping", id="seven"))).json()
        assert answer == {
            "jsonrpc": "2.0",
            "id": "seven",
            "error": {"code": -32600, "message": "Missing session ID"},
            "http_error": "Missing session ID",
        }


async def test_other_methods_name_the_possible_ones() -> None:
    async with serving(TinyService()) as client:
        refused = await client.http.put(client.url, content=b"{}")
        assert refused.status_code == 405
        assert refused.headers["allow"] == "GET, POST, DELETE, OPTIONS"
        options = await client.http.options(client.url)
        assert (options.status_code, options.content) == (204, b"")
        assert (await client.http.get(client.url, headers={"accept": "text/event-stream"})).status_code == 400
        assert (await client.http.get(client.url, headers={"accept": "image/png"})).status_code == 406
        assert (await client.http.delete(client.url)).status_code == 400


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-11-25", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
        ("", "2025-11-25"),
    ],
)
async def test_initialize_negotiates_and_opens_a_session(asked: str, answered: str) -> None:
    service = TinyService()
    async with serving(service) as client:
        answer = await client.initialize(asked)
        assert answer.json()["result"] == {
            "protocolVersion": answered,
            "capabilities": service.capabilities,
            "serverInfo": INFO,
            "instructions": "Be kind.",
        }
        session = answer.headers["mcp-session-id"]
        assert str(uuid.UUID(session)) == session
        ping = await client.post(rpc("ping", id=1))
        assert ping.json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert ping.headers["mcp-session-id"] == session
        again = await client.initialize(asked)
        assert again.headers["mcp-session-id"] == session


async def test_a_session_is_also_found_by_its_place_in_the_path() -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        client.url += "/" + client.headers.pop("mcp-session-id")
        assert (await client.post(rpc("ping", id=1))).json()["result"] == {}


async def test_notifications_and_answers_are_taken_without_a_word() -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        for body in (
            rpc("notifications/initialized"),
            rpc("notifications/nobody/knows", {"a": 1}),
            rpc("notifications/cancelled", {"requestId": {"not": "an id"}}),
            rpc("notifications/cancelled", [1]),
            rpc("notifications/initialized", id=4),
            {"jsonrpc": "2.0", "id": 99, "result": {}},
            {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "x"}},
        ):
            answer = await client.post(body)
            assert (answer.status_code, answer.content) == (202, b"")


async def test_deleting_a_session_cancels_what_is_under_way_and_frees_it() -> None:
    service = TinyService()
    async with serving(service) as client, anyio.create_task_group() as group:
        await client.initialize()

        async def call() -> None:
            async with client.events("POST", tool("wait")) as events:
                assert (await events.message())["error"]["code"] == -32800

        group.start_soon(call)
        await service.entered.wait()
        assert (await client.http.delete(client.url, headers=client.headers)).status_code == 200
        await service.was_cancelled.wait()
        assert (await client.post(rpc("ping", id=2))).status_code == 404
        assert (await client.http.delete(client.url, headers=client.headers)).status_code == 404


async def test_a_session_of_another_account_does_not_exist() -> None:
    async with serving(TinyService(), wrap=account_from_header) as client:
        await client.initialize(x_account="ann")
        assert (await client.post(rpc("ping", id=1), x_account="ann")).status_code == 200
        foreign = await client.post(rpc("ping", id=1), x_account="bob")
        unknown = await client.post(rpc("ping", id=1), x_account="bob", mcp_session_id=str(uuid.uuid4()))
        assert foreign.status_code == unknown.status_code == 404
        assert foreign.content == unknown.content
        headers = {**client.headers, "x-account": "bob"}
        assert (await client.http.delete(client.url, headers=headers)).status_code == 404
        assert (await client.http.get(client.url, headers=headers)).status_code == 404


async def test_beyond_the_cap_a_client_is_asked_to_come_back() -> None:
    async with serving(TinyService(), sessions=SessionSettings(max_live=2)) as client:
        for _ in range(2):
            assert (await client.initialize(mcp_session_id="")).status_code == 200
        full = await client.initialize(mcp_session_id="")
        assert (full.status_code, full.headers["retry-after"]) == (503, "5")
        await client.http.delete(client.url, headers=client.headers)
        assert (await client.initialize(mcp_session_id="")).status_code == 200


async def test_an_idle_session_expires_but_not_while_something_is_under_way() -> None:
    now = 0.0
    service = TinyService()
    async with serving(
        service, sessions=SessionSettings(idle_timeout_s=900, max_live=2), clock=lambda: now
    ) as client:
        await client.initialize()
        async with client.events("POST", tool("wait")) as events, anyio.create_task_group() as group:
            await service.entered.wait()
            now = 5000
            assert (await client.post(rpc("ping", id=2))).status_code == 200
            service.release.set()
            group.start_soon(events.rest)
        now += 901
        assert (await client.post(rpc("ping", id=3))).status_code == 404


async def test_an_id_under_way_cannot_be_used_again_and_types_differ() -> None:
    service = TinyService()
    async with serving(service) as client:
        await client.initialize()
        async with client.events("POST", tool("wait", id=1)) as events:
            await service.entered.wait()
            twice = await client.post(tool("echo", id=1))
            assert (twice.status_code, twice.json()["error"]["code"]) == (400, -32600)
            assert "result" in (await client.post(tool("echo", id="1"))).json()
            service.release.set()
            assert (await events.message())["result"]["content"][0]["text"] == "released"
        assert "result" in (await client.post(tool("echo", id=1))).json()


async def test_a_session_has_a_limit_of_requests_under_way() -> None:
    service = TinyService()
    async with serving(service, settings=ServerSettings(max_concurrent_requests=1)) as client:
        await client.initialize()
        async with client.events("POST", tool("wait", id=1)) as events:
            await service.entered.wait()
            assert (await client.post(tool("echo", id=2))).json()["error"]["code"] == -32000
            service.release.set()
            await events.rest()


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (
            "unavailable",
            {
                "code": -32603,
                "message": "MCP server 'far' is not available: connection refused",
                "data": {"server": "far", "reason": "connection refused", "retryable": True},
            },
        ),
        (
            "late",
            {
                "code": -32001,
                "message": "MCP server 'far' did not answer within 3 s.",
                "data": {"server": "far", "timeoutMs": 3000},
            },
        ),
        ("nothing", {"code": -32602, "message": "unknown tool 'nothing'"}),
    ],
)
async def test_failures_of_others_are_told_as_what_they_are(name: str, error: dict[str, Any]) -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        answer = await client.post(tool(name))
        assert (answer.status_code, answer.json()["error"]) == (200, error)


@pytest.mark.parametrize("name", ["bug", "unserialisable"])
async def test_a_bug_is_told_with_an_id_and_its_details_stay_in_the_log(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        error = (await client.post(tool(name))).json()["error"]
        assert (error["code"], error["message"]) == (-32603, "internal error")
        record = next(r for r in caplog.records if r.message == "request failed")
        assert record.__dict__["id"] == error["data"]["id"]


async def test_relayed_results_keep_every_byte_that_matters() -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        answer = await client.post(tool("spread"))
        assert answer.json()["result"] == {"content": [], "odd": {"kept": [1, 2.5]}}
        assert b"2.50" in answer.content


async def test_a_level_below_the_one_set_is_not_sent() -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        bad = await client.post(rpc("logging/setLevel", {"level": "loud"}, id=1))
        assert bad.json()["error"]["code"] == -32602
        assert (await client.post(rpc("logging/setLevel", {"level": "error"}, id=2))).json()["result"] == {}
        async with client.events("POST", tool("report")) as events:
            messages = await events.rest()
        assert [m["params"]["level"] for m in messages if m.get("method") == "notifications/message"] == [
            "error"
        ]


async def test_modern_requests_need_no_session_and_get_stamped_results() -> None:
    async with serving(TinyService(), settings=ServerSettings(list_ttl_ms=5000)) as client:
        listed = await client.post(modern("tools/list"), mcp_method="tools/list", **MODERN)
        result = listed.json()["result"]
        assert "mcp-session-id" not in listed.headers
        assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 5000, "private")
        assert result["_meta"] == {"io.modelcontextprotocol/serverInfo": INFO}
        called = await client.post(
            modern("tools/call", {"name": "spread"}), mcp_method="tools/call", mcp_name="spread", **MODERN
        )
        assert called.json()["result"] == {
            "resultType": "complete",
            "content": [],
            "odd": {"kept": [1, 2.5]},
            "_meta": {"io.modelcontextprotocol/serverInfo": INFO},
        }
        discovered = await client.post(modern("server/discover"), mcp_method="server/discover", **MODERN)
        assert discovered.json()["result"]["supportedVersions"] == ["2026-07-28"]


NO_CAPABILITIES = rpc(
    "tools/list", {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}, id=1
)
FUTURE = {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (rpc("tools/list", id=1), {"mcp_method": "tools/list", **MODERN}, 400, -32602),
        (NO_CAPABILITIES, {"mcp_method": "tools/list", **MODERN}, 400, -32602),
        (modern("tools/list"), {"mcp_method": "tools/list"}, 400, -32020),
        (modern("tools/list"), {**MODERN}, 400, -32020),
        (modern("tools/list"), {"mcp_method": "tools/call", **MODERN}, 400, -32020),
        (modern("tools/list", **FUTURE), {"mcp_method": "tools/list", **MODERN}, 400, -32020),
        (
            modern("tools/list", **FUTURE),
            {"mcp_method": "tools/list", "mcp_protocol_version": "2099-01-01"},
            400,
            -32022,
        ),
        (modern("tools/call", {"name": "echo"}), {"mcp_method": "tools/call", **MODERN}, 400, -32020),
        (
            modern("tools/call", {"name": "echo"}),
            {"mcp_method": "tools/call", "mcp_name": "=?base64?!!?=", **MODERN},
            400,
            -32020,
        ),
        (modern("nobody/knows"), {"mcp_method": "nobody/knows", **MODERN}, 404, -32601),
        (modern("ping"), {"mcp_method": "ping", **MODERN}, 404, -32601),
        (modern("initialize"), {"mcp_method": "initialize", **MODERN}, 404, -32601),
        (modern("resources/read", {"uri": "x:y"}), READ, 400, -32602),
        (
            modern("subscriptions/listen", {"notifications": {}}),
            {"mcp_method": "subscriptions/listen", "accept": "application/json", **MODERN},
            406,
            -32600,
        ),
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, MODERN, 400, -32600),
    ],
)
async def test_the_modern_ladder(body: Any, headers: dict[str, str], status: int, code: int) -> None:
    async with serving(TinyService()) as client:
        answer = await client.post(body, **headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_modern_odds_and_ends() -> None:
    async with serving(TinyService()) as client:
        name = "=?base64?ZWNobw==?="
        encoded = await client.post(
            modern("tools/call", {"name": "echo"}), mcp_method="tools/call", mcp_name=name, **MODERN
        )
        assert "result" in encoded.json()
        assert (
            await client.post(rpc("notifications/cancelled", {"requestId": 1}), **MODERN)
        ).status_code == 202
        refused = await client.http.get(client.url, headers={"mcp-protocol-version": "2026-07-28"})
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
        twice = await client.http.post(
            client.url,
            content=json.dumps(modern("tools/list")).encode(),
            headers=[
                *client.headers.items(),
                ("mcp-protocol-version", "2026-07-28"),
                ("mcp-method", "tools/list"),
                ("mcp-method", "x"),
            ],
        )
        assert (twice.status_code, twice.json()["error"]["code"]) == (400, -32020)


async def test_a_modern_client_that_leaves_cancels_its_request() -> None:
    service = TinyService()
    async with serving(service) as client:
        body = modern("tools/call", {"name": "wait"})
        headers = {"mcp_method": "tools/call", "mcp_name": "wait", **MODERN}
        for accept in ("application/json, text/event-stream", "application/json"):
            service.entered, service.was_cancelled = anyio.Event(), anyio.Event()
            async with anyio.create_task_group() as group:
                group.start_soon(lambda accept=accept: client.post(body, accept=accept, **headers))
                await service.entered.wait()
                group.cancel_scope.cancel()
            with anyio.fail_after(5):
                await service.was_cancelled.wait()


async def test_r07_refused_requests_leave_nothing_behind() -> None:
    async with serving(TinyService(), sessions=SessionSettings(max_live=1)) as client:
        for body in (b"[", rpc("ping", id=1), rpc("initialize", {"protocolVersion": 1}, id=1)):
            for _ in range(20):
                await client.post(body)
        assert (await client.initialize()).status_code == 200


async def test_r09_no_answer_reaches_another_client() -> None:
    service = TinyService()
    async with serving(service) as client, anyio.create_task_group() as group:

        async def talk(word: int) -> None:
            session = (await client.initialize(mcp_session_id="")).headers["mcp-session-id"]
            for turn in range(5):
                call = tool("echo", id=turn, word=word, turn=turn)
                answer = (await client.post(call, mcp_session_id=session)).json()
                echoed = json.loads(answer["result"]["content"][0]["text"])
                assert (answer["id"], echoed) == (turn, {"word": word, "turn": turn})

        for word in range(40):
            group.start_soon(talk, word)


async def test_half_of_a_surrogate_pair_in_an_argument_becomes_a_character() -> None:
    async with serving(TinyService()) as client:
        await client.initialize()
        params = b'{"name":"echo","arguments":{"x":"cut \\ud83d"}}'
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + params + b"}"
        result = (await client.post(body)).json()["result"]
        assert json.loads(result["content"][0]["text"]) == {"x": "cut \ufffd"}


@pytest.mark.parametrize("declared", [True, False])
async def test_whoever_sends_a_whole_large_body_before_reading_still_learns_that_it_is_too_large(
    declared: bool,
) -> None:
    async def pieces() -> AsyncGenerator[bytes]:
        for _ in range(40):
            yield b" " * (1 << 20)

    async with serving(TinyService(), settings=ServerSettings(max_body_bytes=1 << 20)) as client:
        body: Any = b" " * (40 << 20) if declared else pieces()
        answer = await client.http.post(client.url, content=body, headers=client.headers)
        assert answer.status_code == 413
