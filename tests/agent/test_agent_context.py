"""Conversations that outgrow the model's window: what is condensed, what stays, what is on record."""

from __future__ import annotations

import base64
import struct
from pathlib import Path
from typing import Any

import pytest
from tests.agent.world import World, says_done, tool, world

from nanobot.agent.context import tokens
from nanobot.agent.context.summary import is_summary
from nanobot.llm.messages import Message, ToolCall, ToolOutput, decode_message
from nanobot.llm.scripted import ScriptedModel, Step, calls, fails, says

pytestmark = pytest.mark.anyio

WINDOW = 4000
LONG = "word " * 700  # about 970 tokens


def told(message: Message) -> str:
    return message.text[:40]


async def stored(here: World) -> list[Message]:
    thread = await here.thread()
    return [decode_message(one.raw) for one in await here.store.threads.messages(thread)]


async def test_the_older_part_becomes_a_summary_and_the_last_exchange_stays(tmp_path: Path) -> None:
    steps = [says(LONG), says("Yes."), says("SUMMARY of it"), says("Well."), says("Fine.")]
    async with world(tmp_path, steps, context_window=WINDOW) as here:
        await here.ask("first " + LONG)
        await here.ask("second")
        assert len(here.model.requests[-1].messages) == 3
        result = await here.ask("third " + LONG)
        assert result.stop == "completed"
        condensing, answering = here.model.requests[-2:]
        assert "first word" in condensing.messages[0].text
        assert not condensing.tools.tools
        texts = [told(message) for message in answering.messages]
        assert "SUMMARY of it" in answering.messages[0].text
        assert texts[-1].startswith("third word")
        assert answering.messages[0].role == "user"
        await here.ask("fourth")
        assert here.model.requests[-1].messages[: len(answering.messages)] == answering.messages


async def test_what_was_said_stays_on_record_and_is_what_people_see(tmp_path: Path) -> None:
    steps = [says(LONG), says("Yes."), says("SUMMARY"), says("Well.")]
    async with world(tmp_path, steps, context_window=WINDOW) as here:
        await here.ask("first " + LONG)
        await here.ask("second")
        before = await stored(here)
        await here.ask("third " + LONG)
        after = await stored(here)
        assert after[: len(before)] == before
        assert [is_summary(message) for message in after].count(True) == 1
        seen = await here.history()
        assert len(seen) == 6
        assert not any("SUMMARY" in line for line in seen)


async def test_a_condensed_conversation_goes_on_as_condensed_after_a_restart(tmp_path: Path) -> None:
    steps = [says(LONG), says("Yes."), says("SUMMARY"), says("Well.")]
    async with world(tmp_path, steps, context_window=WINDOW) as here:
        await here.ask("first " + LONG)
        await here.ask("second")
        await here.ask("third " + LONG)
        sent = [*here.model.requests[-1].messages]
    async with world(tmp_path, [says("Again.")], context_window=WINDOW) as here:
        await here.ask("fourth")
        again = here.model.requests[-1].messages
        assert [m.id for m in again[: len(sent)]] == [m.id for m in sent]


async def test_long_results_of_older_rounds_are_shortened_first_and_stay_readable(tmp_path: Path) -> None:
    async def much(_: dict[str, Any]) -> str:
        return "line of output\n" * 150  # about 625 tokens

    steps: list[Step] = [calls("look", n=n) for n in range(14)]
    async with world(tmp_path, [*steps, says("Done.")], tool("look", much), context_window=10_000) as here:
        result = await here.ask("Look around.")
        assert result.stop == "completed"
        outputs = here.outputs()
    texts = [str(output.content[0]["text"]) for output in outputs]
    assert "[Truncated: full output available at " in texts[0]
    assert len(texts[0]) < 600
    path = texts[0].rpartition("available at ")[2].rstrip("]")
    assert Path(path).read_text() == "line of output\n" * 150
    assert texts[-1] == "line of output\n" * 150


async def test_within_a_turn_the_input_and_the_newest_rounds_stay(tmp_path: Path) -> None:
    async def some(_: dict[str, Any]) -> str:
        return "x " * 900  # 500 tokens, short enough to be no stub

    steps: list[Any] = [calls("look", n=i) for i in range(6)]
    steps[5:5] = [says("SUMMARY so far")]
    async with world(tmp_path, [*steps, says("Done.")], tool("look", some), context_window=WINDOW) as here:
        result = await here.ask("Look at everything.")
        assert result.stop == "completed"
        messages = here.model.requests[-1].messages
    assert "SUMMARY so far" in messages[0].text
    assert messages[1].text == "Look at everything."
    made = [item.call_id for m in messages for item in m.items if isinstance(item, ToolCall)]
    given = [item.call_id for m in messages for item in m.items if isinstance(item, ToolOutput)]
    assert made == given
    assert 0 < len(made) < 6


@pytest.mark.parametrize("bad", [fails("server"), says("   "), says("long " * 5000)])
async def test_without_a_usable_summary_the_oldest_is_left_out(bad: Step, tmp_path: Path) -> None:
    steps = [says(LONG), says("Yes."), bad, says("Well.")]
    async with world(tmp_path, steps, context_window=WINDOW) as here:
        await here.ask("first " + LONG)
        await here.ask("second")
        result = await here.ask("third " + LONG)
        assert result.stop == "completed"
        texts = [told(message) for message in here.model.requests[-1].messages]
        assert not any(text.startswith("first") for text in texts)
        assert texts[-1].startswith("third")
        assert not any(is_summary(message) for message in await stored(here))


async def test_a_provider_that_says_it_is_too_much_is_asked_again_after_making_room(tmp_path: Path) -> None:
    # It takes less than thought, so the older part is summarised in pieces.
    steps = [says(LONG), fails("context_length"), *[says("SUMMARY")] * 3, says("Well.")]
    async with world(tmp_path, steps) as here:
        await here.ask("first " + LONG)
        result = await here.ask("second")
        assert result.stop == "completed"
        assert "SUMMARY" in here.model.requests[-1].messages[0].text


async def test_an_input_that_never_fits_is_an_end_with_a_sentence(tmp_path: Path) -> None:
    async with world(tmp_path, [], context_window=WINDOW) as here:
        result = await here.ask("word " * 5000)
    assert result.stop == "context_too_large"
    assert "4000 tokens" in result.error


async def test_two_thousand_rounds_in_a_small_window(tmp_path: Path) -> None:
    model = Chatty(rounds_per_turn=20)
    async with world(tmp_path, [], tool("look", says_done), model=model, context_window=WINDOW) as here:
        for number in range(100):
            await here.ask(f"question {number} " + "about this and that " * 10)
        messages = await stored(here)
    said = [message for message in messages if not is_summary(message)]
    assert [m.text.split()[1] for m in said if m.text.startswith("question")] == [str(n) for n in range(100)]
    assert sum(message.role == "assistant" for message in said) == 2000
    assert len([call for message in said for call in message.calls]) == 1900
    assert model.largest <= WINDOW
    assert 5 < model.summaries < 400
    last = [message.text.split()[1] for message in model.last if message.text.startswith("question")]
    assert last[-1] == "99"


class Chatty(ScriptedModel):
    """Works for some rounds, then answers; sums up when it is told to; and counts."""

    def __init__(self, *, rounds_per_turn: int) -> None:
        super().__init__(())
        self.largest = self.summaries = self.rounds = 0
        self.last: list[Message] = []
        self._rounds_per_turn = rounds_per_turn

    async def respond(self, request: Any, emit: Any) -> Any:
        self.largest = max(self.largest, sum(map(tokens.of_message, request.messages)))
        if request.instructions.startswith("You write a handover"):
            self.summaries += 1
            return await ScriptedModel([says("In short: much.")]).respond(request, emit)
        self.rounds += 1
        self.last = [*request.messages]
        done = self.rounds % self._rounds_per_turn == 0
        step = says("An answer of some words. " * 8) if done else calls("look", at=self.rounds)
        return await ScriptedModel([step]).respond(request, emit)


def png(width: int, height: int) -> str:
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + bytes(9)
    return base64.b64encode(head).decode()


def test_estimates() -> None:
    assert tokens.of_text("") == 0
    assert tokens.of_text("a" * 36) == 10
    assert tokens.of_text("漢字かな") == 4
    assert tokens.of_text("äöüß") == 2
    sizes = {
        (100, 100): 13,
        (1568, 1000): 2091,
        (1568, 1568): 3278,
        (4000, 3000): 2459,
        (1000, 3000): 1091,
        (1, 1): 0,
    }
    for (width, height), expected in sizes.items():
        assert tokens.of_image(png(width, height)) == expected
    for broken in ("", "!!!", base64.b64encode(b"no image").decode()):
        assert tokens.of_image(broken) == 1600


def test_estimates_learn_from_what_is_reported() -> None:
    gauge = tokens.Gauge()
    assert not tokens.is_plausible(400, 400)
    assert not tokens.is_plausible(600, 60_000)
    gauge.learn("m", reported=2000, estimated=1000)
    assert gauge.ratio("m") == pytest.approx(1.3)
    for _ in range(50):
        gauge.learn("m", reported=90_000, estimated=1000)
    assert gauge.ratio("m") == 1.8
    assert gauge.ratio("other") == 1
