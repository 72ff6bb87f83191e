"""Streamable HTTP as a client: what is sent, and what each way of answering badly costs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from tests.wire.http_peer import Answer, Asked, Peer, answer, event, events, reply, serving

from nanobot.aio import task_group
from nanobot.http import open_http
from nanobot.wire.call import Call, Caller
from nanobot.wire.client import ConnectionLost, Hello, NoAnswer
from nanobot.wire.client_http import HttpConnection, open_streamable_http
from nanobot.wire.rpc import Payload, RpcError

ANSWERS = Caller(capabilities={"elicitation": {}, "sampling": {}, "roots": {}})

pytestmark = pytest.mark.anyio

CALL = Payload.of({"name": "work", "arguments": {}})


@asynccontextmanager
async def connected(
    peer: Any, heard: Callable[[str, Payload], None] = lambda method, params: None, **hello: Any
) -> AsyncGenerator[HttpConnection]:
    async with (
        serving(peer) as url,
        open_http() as http,
        open_streamable_http(
            http, url, Hello(version="1", **hello), heard, headers={"X-Key": "canary"}
        ) as connection,
    ):
        yield connection


async def call(connection: HttpConnection, method: str = "tools/call", timeout_s: float = 20) -> Any:
    return (await connection.request(method, CALL, Call(), timeout_s=timeout_s)).value


def answering(method: str, respond: Callable[[Asked], Answer]) -> Peer:
    """A peer that answers `method` in its own way."""

    async def on_request(asked: Asked) -> Answer:
        return respond(asked) if asked.method == method else None

    return Peer(on_request)


def in_turn(method: str, *responses: Callable[[Asked], Answer]) -> Peer:
    """A peer that answers `method` with each of `responses` in turn, and then as usual."""
    left = list(responses)
    return answering(method, lambda asked: left.pop(0)(asked) if left else None)


async def test_every_request_carries_what_belongs_to_it() -> None:
    peer = answering("", lambda asked: None)
    async with connected(peer) as connection:
        assert await call(connection) == {"of": "tools/call"}
        await connection.notify("notifications/roots/list_changed", Payload.of({}))
    by_method = {asked.method or asked.verb: asked.headers for asked in peer.asked}
    assert set(by_method) >= {"initialize", "notifications/initialized", "tools/call", "GET", "DELETE"}
    for method, headers in by_method.items():
        is_first = method in ("server/discover", "initialize")
        assert headers["x-key"] == "canary"
        assert headers.get("mcp-session-id") == (None if is_first else "first")
        if method != "server/discover":
            assert headers.get("mcp-protocol-version") == (None if is_first else "2025-11-25")
    assert by_method["tools/call"]["accept"] == "application/json, text/event-stream"
    assert by_method["GET"]["accept"] == "text/event-stream"


@pytest.mark.parametrize("status", [400, 404, 405, 406, 500, 501])
async def test_whatever_refuses_the_probe_is_asked_to_initialize(status: int) -> None:
    peer = answering("server/discover", lambda asked: Response("no", status_code=status))
    async with connected(peer) as connection:
        assert connection.connected.era == "legacy"


async def test_a_probe_that_is_never_answered_ends_in_the_legacy_era() -> None:
    async def on_request(asked: Asked) -> Answer:
        if asked.method == "server/discover":
            await anyio.sleep_forever()
        return None

    async with connected(Peer(on_request)) as connection:
        assert connection.connected.era == "legacy"


@pytest.mark.parametrize("kind", ["text/event-stream; charset=utf-8", "Text/Event-Stream"])
async def test_media_types_are_compared_without_parameters_and_case(kind: str) -> None:
    def respond(asked: Asked) -> Response:
        return Response(event(reply(asked, 1)), headers={"Content-Type": kind})

    async with connected(answering("tools/call", respond)) as connection:
        assert await call(connection) == 1


REFUSALS: list[tuple[Callable[[Asked], Answer], str]] = [
    (lambda asked: Response(status_code=202), "status 202 to a request"),
    (lambda asked: PlainTextResponse("hello"), "text/plain instead of JSON"),
    (lambda asked: Response("broken", status_code=500), "status 500"),
    (lambda asked: Response(status_code=401), "it wants credentials"),
    (
        lambda asked: RedirectResponse("http://elsewhere.test/mcp"),
        "redirects to http://elsewhere.test/mcp",
    ),
    (lambda asked: RedirectResponse("/mcp", status_code=302), "redirects to"),
    (lambda asked: RedirectResponse("/mcp", status_code=307), "in circles"),
    (lambda asked: events(": nothing\n\n"), "ended before the answer"),
    (lambda asked: events("data: {}\n\n", "data: garbage\n\n"), "ended before the answer"),
]


@pytest.mark.parametrize(("respond", "complaint"), REFUSALS)
async def test_an_answer_that_is_none_is_named_and_the_call_is_not_made_again(
    respond: Callable[[Asked], Answer], complaint: str
) -> None:
    peer = answering("tools/call", respond)
    async with connected(peer) as connection:
        with pytest.raises(ConnectionLost, match=complaint):
            await call(connection)
        assert connection.is_alive
    assert peer.times("tools/call") == (6 if "circles" in complaint else 1)


@pytest.mark.parametrize("body", [b"{", b"[]", b"7", b'{"jsonrpc":"2.0","id":"x","result":{}}'])
async def test_an_answer_that_is_no_answer_to_this_request_is_an_error(body: bytes) -> None:
    peer = answering("tools/call", lambda asked: Response(body, media_type="application/json"))
    async with connected(peer) as connection:
        with pytest.raises(RpcError, match="answer"):
            await call(connection)


async def test_an_error_in_the_body_counts_whatever_the_status() -> None:
    error = {"code": -32602, "message": "no such tool", "data": {"x": 1}}

    def respond(asked: Asked) -> Response:
        return JSONResponse({"jsonrpc": "2.0", "id": asked.message["id"], "error": error}, status_code=400)

    async with connected(answering("tools/call", respond)) as connection:
        with pytest.raises(RpcError, match="no such tool") as refusal:
            await call(connection)
        assert refusal.value.data is not None
        assert refusal.value.data.value == {"x": 1}


async def test_a_redirect_on_the_same_origin_is_followed_with_everything() -> None:
    peer = in_turn("tools/call", lambda asked: RedirectResponse("/other", status_code=308))
    async with connected(peer) as connection:
        assert await call(connection) == {"of": "tools/call"}
    assert [asked.headers["x-key"] for asked in peer.asked if asked.method == "tools/call"] == ["canary"] * 2


async def test_a_lost_session_is_begun_again_once_for_all_who_notice() -> None:
    async def on_request(asked: Asked) -> Answer:
        session = asked.headers.get("mcp-session-id")
        return Response(status_code=404) if session is not None and session != peer.session else None

    peer = Peer(on_request)
    async with connected(peer) as connection, task_group() as group:
        peer.session = "second"
        for _ in range(10):
            group.start_soon(call, connection)
    assert peer.times("initialize") == 2
    used = [asked.headers["mcp-session-id"] for asked in peer.asked if asked.method == "tools/call"]
    assert used.count("second") == 10


async def test_an_answer_that_comes_late_does_not_bring_the_old_session_back() -> None:
    answered, begun = anyio.Event(), anyio.Event()

    async def forgetful(asked: Asked) -> Answer:
        session = asked.headers.get("mcp-session-id")
        if asked.method == "prompts/get":  # under way while the session is forgotten
            await begun.wait()
            return answer(asked, {"late": True}, headers={"Mcp-Session-Id": "first"})
        if asked.method == "initialize" and peer.session == "second":
            result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "p"}}
            news = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            named = {"Mcp-Session-Id": "second"}
            return events(event(news), answered.wait(), event(reply(asked, result)), headers=named)
        return Response(status_code=404) if session not in (None, peer.session) else None

    peer = Peer(forgetful)
    async with connected(peer, lambda method, params: begun.set()) as connection, task_group() as group:

        async def late() -> None:
            assert await call(connection, "prompts/get") == {"late": True}
            answered.set()

        group.start_soon(late)
        while not peer.times("prompts/get"):  # noqa: ASYNC110
            await anyio.sleep(0.01)
        peer.session = "second"
        for _ in range(2):
            await call(connection)
    used = [asked.headers["mcp-session-id"] for asked in peer.asked if asked.method == "tools/call"]
    assert used == ["first", "second", "second"]


async def test_a_session_that_cannot_be_begun_again_ends_the_connection() -> None:
    async def on_request(asked: Asked) -> Answer:
        if gone and asked.verb == "POST":
            return Response(status_code=404)
        return None

    gone: list[bool] = []
    async with connected(Peer(on_request)) as connection:
        gone.append(True)
        with pytest.raises(ConnectionLost, match="no new one began"):
            await call(connection)
        assert "no new one began" in await connection.lost()


async def test_a_busy_server_is_asked_again_when_it_says_so_and_soon() -> None:
    peer = in_turn("tools/call", lambda asked: Response(status_code=429, headers={"Retry-After": "0"}))
    async with connected(peer) as connection:
        assert await call(connection) == {"of": "tools/call"}
    for later in ("3600", "9" * 5000, "²"):
        headers = {"Retry-After": later}
        peer = answering(
            "tools/call", lambda asked, headers=headers: Response(status_code=503, headers=headers)
        )
        async with connected(peer) as connection:
            with pytest.raises(ConnectionLost, match="503"):
                await call(connection)
        assert peer.times("tools/call") == 1


async def test_a_stream_that_was_cut_is_taken_up_where_it_ended() -> None:
    question: list[Asked] = []

    async def on_request(asked: Asked) -> Answer:
        if asked.method == "tools/call":
            question.append(asked)
            return events(event(None, id="e1", retry=10))
        match asked.headers.get("last-event-id"):
            case "e1":
                progress = {"progressToken": question[0].message["id"], "progress": 1}
                news = {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}
                return events(event(news, id="e2"))
            case "e2":
                return events(event(reply(question[0], "late")))
            case _:
                return None

    heard: list[Any] = []
    async with connected(Peer(on_request)) as connection:
        result = await connection.request(
            "tools/call", CALL, Call(notify=lambda method, params: heard.append(params.value)), timeout_s=20
        )
    assert result.value == "late"
    assert heard == [{"progress": 1}]


async def test_a_stream_is_not_taken_up_for_ever() -> None:
    async def on_request(asked: Asked) -> Answer:
        if asked.method == "tools/call":
            return events(event(None, id="e1", retry=10))
        return events(": nothing\n\n") if "last-event-id" in asked.headers else None

    peer = Peer(on_request)
    async with connected(peer) as connection:
        with pytest.raises(ConnectionLost, match="ended before the answer") as failure:
            await call(connection)
        assert failure.value.maybe_sent
    assert sum("last-event-id" in asked.headers for asked in peer.asked) == 5


async def test_a_question_on_the_stream_is_answered_while_the_call_goes_on() -> None:
    answered = anyio.Event()
    replies: list[Any] = []

    async def on_request(asked: Asked) -> Answer:
        if asked.method == "tools/call":
            question = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"a": 1}}
            ping = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
            return events(event(ping), event(question), answered.wait(), event(reply(asked, "thanks")))
        if "result" in asked.message:
            replies.append(asked.message)
            if asked.message["id"] == "q":
                answered.set()
        return None

    async def ask(method: str, params: Payload) -> Payload:
        assert (method, params.value) == ("elicitation/create", {"a": 1})
        return Payload.of({"action": "decline"})

    async with connected(Peer(on_request)) as connection:
        # The time of the call stands still meanwhile, so a short one does no harm.
        result = await connection.request("tools/call", CALL, Call(ask=ask, caller=ANSWERS), timeout_s=20)
    assert result.value == "thanks"
    assert {"jsonrpc": "2.0", "id": "q", "result": {"action": "decline"}} in replies


async def test_progress_winds_the_clock_up_again() -> None:
    async def on_request(asked: Asked) -> Answer:
        if asked.method != "tools/call":
            return None
        progress = {"progressToken": asked.message["params"]["_meta"]["progressToken"], "progress": 1}
        news = event({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
        parts: list[str | Awaitable[None]] = []
        for _ in range(6):
            parts += [anyio.sleep(0.1), news]
        return events(*parts, event(reply(asked, "slow")))

    async with connected(Peer(on_request)) as connection:
        result = await connection.request("tools/call", CALL, Call(wants_progress=True), timeout_s=0.4)
    assert result.value == "slow"


async def test_a_call_whose_time_is_over_is_cancelled_by_name() -> None:
    cancelled = anyio.Event()
    ids: list[Any] = []

    async def on_request(asked: Asked) -> Answer:
        if asked.method == "tools/call":
            ids.append(asked.message["id"])
            await cancelled.wait()
        if asked.method == "notifications/cancelled":
            ids.append(asked.message["params"]["requestId"])
            cancelled.set()
        return None

    async with connected(Peer(on_request)) as connection:
        with pytest.raises(NoAnswer):
            await call(connection, timeout_s=0.1)
        with anyio.fail_after(10):
            await cancelled.wait()
    assert ids[0] == ids[1]


async def test_news_is_heard_on_a_stream_that_is_opened_again_when_it_ends() -> None:
    changed = event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}, id="n1", retry=10)
    heard = anyio.Event()
    times = 0

    def hear(method: str, params: Payload) -> None:
        nonlocal times
        times += 1
        if times == 3:
            heard.set()

    async def on_request(asked: Asked) -> Answer:
        return events(changed) if asked.verb == "GET" else None

    peer = Peer(on_request)
    async with connected(peer, hear):
        with anyio.fail_after(10):
            await heard.wait()
    ids = [asked.headers.get("last-event-id") for asked in peer.asked if asked.verb == "GET"]
    assert ids[:3] == [None, "n1", "n1"]
