"""One request over real HTTP: what a provider may do wrong, and what becomes of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

import anyio
import pytest
from tests.llm.dialects import ALL, ANTHROPIC, CHAT, RESPONSES, Pair, endpoint, request, said, user

from nanobot.http import Http, open_http
from nanobot.llm.endpoint import Endpoint
from nanobot.llm.messages import Content
from nanobot.llm.model import Delta, ModelRequest, ModelResponse, ProviderError, TextDelta
from nanobot.llm.provider import Provider
from nanobot.testing.model_server import ModelServer, Reply, model_server

pytestmark = pytest.mark.anyio
each_dialect = pytest.mark.parametrize("pair", ALL, ids=str)


@dataclass
class World:
    server: ModelServer
    http: Http

    def provider(self, pair: Pair, *, idle_s: float = 5.0, base_url: str = "") -> Provider:
        return Provider(pair.dialect, self.endpoint(base_url), self.http, idle_s=lambda: idle_s)

    def endpoint(self, base_url: str = "") -> Endpoint:
        return endpoint(base_url=base_url or self.server.url, headers={"X-Extra": "yes"})


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    async with model_server() as server, open_http() as http:
        yield World(server, http)


async def ask(model: Provider, asked: ModelRequest | None = None) -> tuple[ModelResponse, list[Delta]]:
    deltas: list[Delta] = []
    return await model.respond(asked or request(), deltas.append), deltas


async def refusal(model: Provider, asked: ModelRequest | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as failed:
        await ask(model, asked)
    return failed.value


@each_dialect
async def test_an_answer_arrives_word_by_word(world: World, pair: Pair) -> None:
    world.server.queue(Reply(text="one two three"))
    answer, deltas = await ask(world.provider(pair), request(user("hi"), thread="t"))

    assert [d.text for d in deltas if isinstance(d, TextDelta)] == ["one ", "two ", "three"]
    assert answer.items[0].id == deltas[0].item_id
    headers = world.server.requests[0].headers
    assert headers["user-agent"].startswith("nanobot/")
    assert headers["x-extra"] == "yes"
    assert headers["x-session-affinity"] != "t"
    if pair is ANTHROPIC:
        assert (headers["x-api-key"], headers["anthropic-version"]) == ("secret-key", "2023-06-01")
    else:
        assert headers["authorization"] == "Bearer secret-key"


@each_dialect
async def test_a_connection_is_used_again_after_a_whole_answer(world: World, pair: Pair) -> None:
    model = world.provider(pair)
    for _ in range(3):
        await ask(model)
    assert world.server.connections == 1


@each_dialect
@pytest.mark.parametrize("fault", ["cut_after", "end_after"])
async def test_a_truncated_stream_is_an_error(world: World, pair: Pair, fault: str) -> None:
    whole = len(pair.stream(Reply(text="one two three")))
    for count in range(0, whole - 3):
        world.server.queue(Reply(text="one two three", **{fault: count}))
        error = await refusal(world.provider(pair))
        assert error.kind == "connection"
        assert error.retryable


@each_dialect
async def test_a_complete_answer_survives_a_rough_end_of_its_connection(world: World, pair: Pair) -> None:
    world.server.queue(Reply(text="one two", cut_after=len(pair.stream(Reply(text="one two")))))
    answer, _ = await ask(world.provider(pair))
    assert answer.finish == "stop"


@each_dialect
async def test_a_giant_event_is_read(world: World, pair: Pair) -> None:
    world.server.queue(Reply(text="x" * 3_000_000, chunks=1))
    answer, _ = await ask(world.provider(pair))
    assert said(answer) == "x" * 3_000_000


@each_dialect
async def test_an_error_says_whether_text_was_shown(world: World, pair: Pair) -> None:
    events = len(pair.stream(Reply(text="one two three")))
    world.server.queue(Reply(text="one two three", error_after=events - 4), Reply(status=500))
    assert (await refusal(world.provider(pair))).shown
    assert not (await refusal(world.provider(pair))).shown


@each_dialect
async def test_a_document_instead_of_a_stream_is_read_as_a_whole(world: World, pair: Pair) -> None:
    world.server.queue(Reply(text="Hello", plain=True))
    answer, _ = await ask(world.provider(pair))
    assert said(answer) == "Hello"


@each_dialect
async def test_tiny_pieces_make_the_same_answer(world: World, pair: Pair) -> None:
    world.server.queue(Reply(text="one é👍 three", split=1))
    answer, _ = await ask(world.provider(pair))
    assert said(answer) == "one é👍 three"


@each_dialect
async def test_silence_ends_a_request(world: World, pair: Pair) -> None:
    world.server.queue(Reply(text="late", wait_ms=30_000), Reply(text="late", pause_ms=30_000))
    for _ in range(2):
        error = await refusal(world.provider(pair, idle_s=0.1))
        assert error.kind == "timeout"
        assert error.retryable


@each_dialect
async def test_a_slow_stream_is_no_silent_one(world: World, pair: Pair) -> None:
    world.server.queue(Reply(text="a b c d e f g h", pause_ms=80))
    answer, _ = await ask(world.provider(pair, idle_s=0.6))
    assert answer.finish == "stop"


@pytest.mark.parametrize("sign", ["comments", "pings"])
async def test_signs_of_life_alone_keep_a_stream_open_for_five_periods(world: World, sign: str) -> None:
    world.server.queue(Reply(text="late", pause_ms=15, **{sign: 10_000}))
    error = await refusal(world.provider(ANTHROPIC, idle_s=0.05))
    assert error.kind == "timeout"
    assert "no data for 0.25 s" in str(error)


async def test_comments_and_pings_between_events_do_no_harm(world: World) -> None:
    world.server.queue(Reply(text="one two", comments=2, pings=2))
    answer, _ = await ask(world.provider(ANTHROPIC))
    assert answer.finish == "stop"


async def test_leaving_ends_the_request_at_the_provider(world: World) -> None:
    world.server.queue(Reply(text="a b c", pause_ms=30_000))
    with anyio.move_on_after(0.2) as scope:
        await ask(world.provider(CHAT))
    assert scope.cancelled_caught
    while world.server.connections:
        await anyio.lowlevel.checkpoint()


@each_dialect
async def test_a_server_that_is_not_there_is_a_connection_error(world: World, pair: Pair) -> None:
    error = await refusal(world.provider(pair, base_url="http://127.0.0.1:9"))
    assert error.kind == "connection"
    assert error.retryable
    assert "acme" in str(error)


async def test_a_key_never_appears_in_an_error(world: World) -> None:
    for status in (400, 401, 403, 500):
        world.server.queue(Reply(status=status, error_message="bad key secret-key or sk-abcdefghijklmnop"))
        error = await refusal(world.provider(CHAT))
        for text in (str(error), error.detail):
            assert "secret-key" not in text
            assert "abcdefghij" not in text


@pytest.mark.parametrize("pair", [CHAT, RESPONSES], ids=str)
async def test_a_refused_temperature_is_left_out_from_then_on(world: World, pair: Pair) -> None:
    model = world.provider(pair)
    message = "Unsupported parameter: 'temperature' is not supported with this model."
    world.server.queue(Reply(status=400, error_message=message), Reply(text="fine"), Reply(text="again"))

    asked = request(temperature=0.5)
    await ask(model, asked)
    await ask(model, asked)

    sent = ["temperature" in r.json for r in world.server.requests]
    assert sent == [True, False, False]


async def test_the_other_name_of_the_output_limit_is_learned(world: World) -> None:
    model = world.provider(CHAT)
    message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    world.server.queue(Reply(status=400, error_message=message), Reply(text="fine"))

    await ask(model, request(max_tokens=77))

    assert world.server.requests[-1].json["max_completion_tokens"] == 77
    assert "max_tokens" not in world.server.requests[-1].json


async def test_a_smaller_output_limit_is_learned(world: World) -> None:
    model = world.provider(ANTHROPIC)
    message = "max_tokens: 90000 > 8192, which is the maximum allowed number of output tokens"
    world.server.queue(Reply(status=400, error_message=message), Reply(text="fine"))

    await ask(model, request(max_tokens=90_000))

    assert world.server.requests[-1].json["max_tokens"] == 8192


async def test_refused_stream_options_are_left_out(world: World) -> None:
    model = world.provider(CHAT)
    world.server.queue(Reply(status=422, error_message="extra field stream_options"), Reply(text="fine"))
    await ask(model)
    assert "stream_options" not in world.server.requests[-1].json


async def test_images_are_left_out_for_a_model_that_refuses_them(
    world: World,
) -> None:
    model = world.provider(CHAT)
    image = Content("", {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="})
    asked = request(user("look", image))
    world.server.queue(
        Reply(status=400, error_message="this model does not support image input"), Reply(text="fine")
    )
    await ask(model, asked)
    assert b"iVBORw0KGgo" in world.server.requests[-2].body
    assert b"iVBORw0KGgo" not in world.server.requests[-1].body
    assert image in asked.messages[0].items


async def test_a_refusal_that_teaches_nothing_is_final(world: World) -> None:
    world.server.queue(*[Reply(status=400, error_message="temperature too hot")] * 2)
    error = await refusal(world.provider(CHAT))  # no temperature was sent
    assert error.kind == "invalid_request"
    assert world.server.count == 1
