"""The scripted server itself: how a script is given to it, and that it is fast enough to measure others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.llm.dialects import ALL, CHAT, Pair, assistant, endpoint, neutral, request, result, user

from nanobot.http import Http, open_http
from nanobot.llm.messages import Message
from nanobot.llm.provider import Provider
from nanobot.llm.words import words
from nanobot.testing.model_reply import Reply, replies_in
from nanobot.testing.model_server import ModelServer, model_server

pytestmark = pytest.mark.anyio


@pytest.fixture
async def http() -> AsyncGenerator[Http]:
    async with open_http() as client:
        yield client


@pytest.fixture
async def server() -> AsyncGenerator[ModelServer]:
    async with model_server(Reply(text="default")) as running:
        yield running


@pytest.mark.parametrize("pair", ALL, ids=str)
async def test_markers_in_a_message_are_the_rounds_of_a_turn(
    http: Http, server: ModelServer, pair: Pair
) -> None:
    model = Provider(pair.dialect, endpoint(base_url=server.url), http, idle_s=lambda: 5.0)
    script = (
        'go [[{"calls": [{"name": "a", "arguments": {"x": [[1]]}}, {"name": "b"}]}]] '
        '[[{"calls": [{"name": "c"}]}]] and then [[{"text": "done"}]]'
    )
    messages: list[Message] = [user("earlier"), assistant("yes"), user(script)]
    made: list[object] = []
    for _ in range(4):
        answer = await model.respond(request(*messages), lambda _: None)
        made.append([n[-2:] if n[0] == "call" else n[1] for n in neutral(answer.items)])
        message = assistant(*answer.items)
        messages += [message, user(*(result(c.call_id) for c in message.calls) or ("next",))]
    assert made == [[("a", '{"x": [[1]]}'), ("b", "{}")], [("c", "{}")], ["done"], ["default"]]


async def test_replies_and_requests_go_through_the_control_addresses(http: Http, server: ModelServer) -> None:
    root = server.url.removesuffix("/v1")
    queued = await http.request("POST", f"{root}/control/replies", body=b'[{"text": "queued"}]')
    refused = await http.request("POST", f"{root}/control/replies", body=b'[{"txt": "queued"}]')
    assert (queued.status, refused.status) == (200, 400)

    model = Provider(CHAT.dialect, endpoint(base_url=server.url), http, idle_s=lambda: 5.0)
    assert neutral((await model.respond(request(), lambda _: None)).items) == [("text", "queued")]
    seen = msgspec.json.decode((await http.request("GET", f"{root}/control/requests")).body)
    assert seen["count"] == 1
    assert seen["requests"][0]["body"]["messages"][0]["content"] == "hello"
    assert (await http.request("GET", f"{root}/nowhere")).status == 404


async def test_answers_have_ids_of_their_own(http: Http, server: ModelServer) -> None:
    model = Provider(CHAT.dialect, endpoint(base_url=server.url), http, idle_s=lambda: 5.0)
    asked = request(user('[[{"calls": [{"name": "a"}]}]]'))
    ids = {assistant(*(await model.respond(asked, lambda _: None)).items).calls[0].call_id for _ in range(3)}
    assert len(ids) == 3


def test_as_a_program_it_prints_its_address() -> None:
    command = [sys.executable, "-m", "nanobot.testing.model_server", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        address = process.stdout.readline()
        process.terminate()
    assert address.startswith("http://127.0.0.1:")
    assert address.endswith("/v1\n")


def test_a_marker_that_is_no_reply_is_an_error_and_other_text_is_none() -> None:
    assert replies_in("[[wiki]] [[{]] {{}} [[{} ") == ()
    with pytest.raises(msgspec.ValidationError):
        replies_in('[[{"txt": 1}]]')


@given(st.text())
def test_words_are_the_whole_text(text: str) -> None:
    assert "".join(words(text)) == text
    assert "".join(Reply(text=text, chunks=3).pieces) == text
    assert "".join(Reply(text=text).pieces) == text
