"""Conversations: queues, readers, stopping, and what a reader can and cannot do to a turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.agent.world import World, says_done, text_of, tool, until_ended, world

from nanobot.agent.conversation import MOST_WAITING
from nanobot.agent.engine import Input
from nanobot.agent.events import Delta, MessageAdded, TurnEnded, TurnStarted
from nanobot.aio import task_group
from nanobot.errors import Busy, NotFound
from nanobot.llm.scripted import Step, all_call, calls, says, slow

pytestmark = pytest.mark.anyio


class Gate:
    """A step or a tool that tells when it is reached and waits until it is let on."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.opened = anyio.Event()

    async def pass_(self, *_: object) -> str:
        self.reached.set()
        await self.opened.wait()
        return "passed"


async def test_inputs_of_a_busy_thread_are_answered_in_the_order_they_came(tmp_path: Path) -> None:
    gate = Gate()
    script = [slow(says("one"), gate.pass_), says("two"), says("three")]
    async with world(tmp_path, script) as w:
        turns = [await w.submit(text) for text in ("1", "2", "3")]
        await gate.reached.wait()
        assert await w.history() == ["user: 1"]
        gate.opened.set()
        results = [await turn.wait() for turn in turns]
        assert [r.message.text for r in results] == ["one", "two", "three"]
        expected = ["user: 1", "assistant: one", "user: 2", "assistant: two", "user: 3", "assistant: three"]
        assert await w.history() == expected
    async with world(tmp_path) as restarted:
        assert await restarted.history() == expected


async def test_more_waiting_inputs_than_allowed_are_refused(tmp_path: Path) -> None:
    gate = Gate()
    async with world(tmp_path, [slow(says("one"), gate.pass_)], all_used=False) as w:
        running = await w.submit("0")
        await gate.reached.wait()
        for n in range(MOST_WAITING):
            await w.submit(str(n + 1))
        with pytest.raises(Busy):
            await w.submit("too many")
        assert w.engine.stop(await w.thread())
        await running.wait()


async def test_stopping_drops_what_waits(tmp_path: Path) -> None:
    gate = Gate()
    async with world(tmp_path, [slow(says("one"), gate.pass_), says("again")]) as w:
        turns = [await w.submit("1"), await w.submit("2")]
        await gate.reached.wait()
        assert w.engine.stop(await w.thread(), "enough")
        assert [(await turn.wait()).stop for turn in turns] == ["cancelled", "cancelled"]
        assert not w.engine.stop(await w.thread())
        assert (await w.ask("3")).message.text == "again"


async def test_two_readers_see_the_same_and_one_that_comes_late_misses_nothing(tmp_path: Path) -> None:
    gate = Gate()

    async def long_tool(arguments: dict[str, Any]) -> str:
        return await gate.pass_()

    script = [calls("wait"), says("It is done")]
    async with world(tmp_path, script, tool("wait", long_tool)) as w:
        thread = await w.thread()
        async with w.engine.attach(thread) as early:
            turn = await w.submit("go")
            await gate.reached.wait()
            async with w.engine.attach(thread) as late:
                assert late.running == turn.id
                assert isinstance(late.backlog[0].body, TurnStarted)
                gate.opened.set()
                first = await until_ended(early)
                second = late.backlog + await until_ended(late)
        assert [type(e.body) for e in first] == [type(e.body) for e in second]
        assert [e.sequence for e in second] == sorted({e.sequence for e in second})
        said = [e.body.message.text for e in second if isinstance(e.body, MessageAdded)]
        assert said[-1] == "It is done"


async def test_a_reader_that_reads_late_gets_joined_deltas_and_every_other_event(tmp_path: Path) -> None:
    text = "word " * 1000
    async with world(tmp_path, [calls("t"), says(text)], tool("t", says_done)) as w:
        async with w.engine.attach(await w.thread()) as reader:
            assert (await w.ask("go")).stop == "completed"
            seen = await until_ended(reader)
        assert len(seen) < 15
        pieces = [e.body.delta.text for e in seen if isinstance(e.body, Delta)]
        assert pieces[-1] == text
        assert isinstance(seen[-1].body, TurnEnded)
        assert [type(e.body).__name__ for e in seen].count("ToolFinished") == 1


async def test_a_reader_that_never_reads_holds_up_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, [says("x " * 500)] * 3) as w:
        async with w.engine.attach(await w.thread()):
            for _ in range(3):
                assert (await w.ask("go")).stop == "completed"


async def test_who_leaves_stops_nothing(tmp_path: Path) -> None:
    gate = Gate()
    async with world(tmp_path, [slow(says("still here"), gate.pass_)]) as w:
        async with task_group() as readers:

            async def ask() -> None:
                async with w.engine.attach(await w.thread()):
                    await (await w.submit("go")).wait()

            readers.start_soon(ask)
            await gate.reached.wait()
            readers.cancel_scope.cancel()
        async with w.engine.attach(await w.thread()) as reader:
            gate.opened.set()
            seen = reader.backlog + await until_ended(reader)
        assert isinstance(seen[-1].body, TurnEnded)
        assert await w.history() == ["user: go", "assistant: still here"]


async def test_a_listener_that_fails_is_told_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(body: object) -> None:
        raise RuntimeError("listener")

    async with world(tmp_path, [says("ok")]) as w:
        turn = await w.engine.submit(await w.thread(), Input(text="go"), on_event=fails)
        assert (await turn.wait()).stop == "completed"
        assert "a listener failed" in caplog.text


async def ask_again(w: World) -> None:
    """After a stop the thread goes on as if nothing had happened."""
    assert (await w.ask("and now?")).message.text == "going on"
    request = w.model.requests[-1]
    asked = [call.call_id for message in request.messages for call in message.calls]
    given = [o.call_id for o in w.outputs()]
    assert sorted(asked) == sorted(given)
    assert request.messages[0].role == "user"


async def test_stopped_before_the_first_word(tmp_path: Path) -> None:
    gate = Gate()
    async with world(tmp_path, [slow(says("never"), gate.pass_), says("going on")]) as w:
        turn = await w.submit("go")
        await gate.reached.wait()
        turn.cancel()
        result = await turn.wait()
        assert result.stop == "cancelled"
        assert result.message.items == ()
        assert result.message.meta["ai.nanobot.meta/cancelled"] is True
        assert w.kinds()[-1] == "TurnEnded"
        await ask_again(w)
        assert "stopped" in w.model.requests[-1].messages[1].text


class Hanging:
    """A model that says something and then nothing more."""

    def __init__(self, *deltas: Any, then: Any) -> None:
        self.deltas = deltas
        self.then = then
        self.said = anyio.Event()
        self.requests: list[Any] = []

    async def respond(self, request: Any, emit: Any) -> Any:
        if self.said.is_set():
            return await self.then.respond(request, emit)
        for delta in self.deltas:
            emit(delta)
        self.said.set()
        return await anyio.sleep_forever()


async def test_stopped_in_the_middle_the_text_is_kept_and_half_a_call_dropped(tmp_path: Path) -> None:
    from nanobot.llm.model import ArgumentsDelta, ReasoningDelta, TextDelta
    from nanobot.llm.scripted import ScriptedModel

    then = ScriptedModel([says("going on")])
    model = Hanging(
        ReasoningDelta("r", "think"),
        TextDelta("t", "Half an "),
        TextDelta("t", "answer"),
        ArgumentsDelta("c", "call_1", "tool", '{"a'),
        then=then,
    )
    async with world(tmp_path, model=model) as w:
        turn = await w.submit("go")
        await model.said.wait()
        turn.cancel()
        result = await turn.wait()
        assert result.message.text == "Half an answer"
        assert result.message.calls == []
        assert (await w.ask("more")).message.text == "going on"
        assert then.requests[0].messages[1].text.startswith("Half an answer")


async def test_stopped_during_tools_each_call_gets_a_result(tmp_path: Path) -> None:
    gate, ended = Gate(), []

    async def hang(arguments: dict[str, Any]) -> str:
        try:
            return await gate.pass_()
        finally:
            ended.append("cancelled")

    script = [all_call(("hang", {}), ("after", {})), says("going on")]
    async with world(tmp_path, script, tool("hang", hang), tool("after", says_done)) as w:
        turn = await w.submit("go")
        await gate.reached.wait()
        turn.cancel()
        assert (await turn.wait()).stop == "cancelled"
        assert ended == ["cancelled"]
        await ask_again(w)
        running, waiting = (text_of(o) for o in w.outputs())
        assert "unknown" in running
        assert "before it started" in waiting
        assert w.kinds().count("ToolFinished") == 2


async def test_a_tool_that_ignores_the_stop_is_left_behind(tmp_path: Path) -> None:
    gate = Gate()

    async def stubborn(arguments: dict[str, Any]) -> str:
        with anyio.CancelScope(shield=True):
            return await gate.pass_()

    async with world(tmp_path, [calls("stubborn"), says("going on")], tool("stubborn", stubborn)) as w:
        turn = await w.submit("go")
        await gate.reached.wait()
        turn.cancel()
        with anyio.fail_after(10):
            assert (await turn.wait()).stop == "cancelled"
        await ask_again(w)
        gate.opened.set()
        assert w.kinds().count("ToolFinished") == 1


async def test_stopped_in_the_middle_of_a_group_finished_members_keep_their_results(tmp_path: Path) -> None:
    gate = Gate()
    tools = [tool("quick", says_done, read_only=True), tool("hang", gate.pass_, read_only=True)]
    script = [all_call(("hang", {}), ("quick", {})), says("going on")]
    async with world(tmp_path, script, *tools) as w:
        turn = await w.submit("go")
        await gate.reached.wait()
        with anyio.fail_after(10):
            while "ToolFinished" not in w.kinds():
                await anyio.lowlevel.checkpoint()
        turn.cancel()
        await turn.wait()
        await ask_again(w)
        assert ["unknown" in text_of(o) for o in w.outputs()] == [True, False]


async def test_with_one_slot_turns_run_one_at_a_time_and_delegation_cannot_block(tmp_path: Path) -> None:
    from nanobot.config.model import Agent

    gate = Gate()
    ask: Step = slow(calls("chat-with-expert", prompt="?"), gate.pass_)
    scripts = {"main": [ask, says("a"), says("b")], "expert": [says("42")]}
    agents = [Agent(id="expert")]
    async with world(tmp_path, scripts, agents=agents, agents_of_main=("expert",), max_turns=1) as w:
        first = await w.submit("one")
        await gate.reached.wait()
        other = await w.engine.open_thread(key="other")
        second = await w.engine.submit(other.id, Input(text="two"))
        assert len(w.model.requests) == 1
        gate.opened.set()
        assert (await first.wait()).message.text == "a"
        assert (await second.wait()).message.text == "b"


async def test_one_shot_turns_leave_nothing_behind_and_end_with_their_caller(tmp_path: Path) -> None:
    gate = Gate()
    async with world(tmp_path, [says("42"), slow(says("never"), gate.pass_)]) as w:
        result = await w.engine.once("main", Input(text="6 x 7?"), on_event=w.events.append)
        assert result.message.text == "42"
        async with task_group() as callers:
            callers.start_soon(lambda: w.engine.once("main", Input(text="?"), on_event=w.events.append))
            await gate.reached.wait()
            callers.cancel_scope.cancel()
        assert w.events[-1].stop == "cancelled"
        assert await w.engine.threads() == []


async def test_threads_are_found_by_key_made_once_and_gone_when_deleted(tmp_path: Path) -> None:
    async with world(tmp_path, [says("ok")]) as w:
        rows: list[Any] = []
        async with task_group() as openers:

            async def open_it() -> None:
                rows.append(await w.engine.open_thread(key="k", folder=tmp_path / "work"))

            for _ in range(5):
                openers.start_soon(open_it)
        assert len({row.id for row in rows}) == 1
        thread = await w.thread()
        await w.ask("What is the meaning of all this, and more of the like, and more still?")
        row = await w.engine.open_thread(id=thread)
        assert row.title == "What is the meaning of all this, and more of the like, and…"
        assert Path(row.folder) == tmp_path / "files" / thread
        async with w.engine.attach(thread) as reader:
            await w.engine.delete_thread(thread)
            assert [event async for event in reader] == []
        with pytest.raises(NotFound):
            await w.engine.open_thread(id=thread)
        with pytest.raises(NotFound):
            await w.engine.open_thread(id="nobody's")
        with pytest.raises(NotFound):
            await w.engine.open_thread(agent="nobody")


async def test_sequences_rise_over_turns(tmp_path: Path) -> None:
    async with world(tmp_path, [says("a"), says("b")]) as w:
        async with w.engine.attach(await w.thread()) as reader:
            await w.ask("1")
            await w.ask("2")
            numbers = [e.sequence for e in await until_ended(reader) + await until_ended(reader)]
        assert numbers == sorted(set(numbers))
