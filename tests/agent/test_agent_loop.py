"""The loop, scenario by scenario: what a person sees, and what the model is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.agent.world import says_done, text_of, tool, world

from nanobot.builtin.server import ToolFailed
from nanobot.config.model import Agent
from nanobot.llm.messages import ToolOutput
from nanobot.llm.scripted import ScriptedCall, Step, all_call, calls, cut_off, fails, says

pytestmark = pytest.mark.anyio


async def test_an_answer_is_streamed_stored_and_ends_the_turn(tmp_path: Path) -> None:
    async with world(tmp_path, [says("Good morning")]) as w:
        result = await w.ask("Hello")
        assert (result.stop, result.message.text, result.error) == ("completed", "Good morning", "")
        assert w.kinds() == ["TurnStarted", "Delta", "Delta", "MessageAdded", "TurnEnded"]
        assert await w.history() == ["user: Hello", "assistant: Good morning"]


async def test_a_failing_tool_is_reported_to_the_model_and_the_turn_goes_on(tmp_path: Path) -> None:
    async def divide(arguments: dict[str, Any]) -> Any:
        raise ToolFailed("division by zero")

    script = [calls("divide", a=1, b=0), says("That has no answer.")]
    async with world(tmp_path, script, tool("divide", divide)) as w:
        result = await w.ask("1/0?")
        assert result.message.text == "That has no answer."
        [output] = w.outputs()
        assert output.is_error
        assert "division by zero" in text_of(output)
        assert w.kinds() == [
            "TurnStarted",
            "Delta",
            "MessageAdded",
            "ToolStarted",
            "ToolFinished",
            "MessageAdded",
            *["Delta"] * 4,
            "MessageAdded",
            "TurnEnded",
        ]


class Clockwork:
    """Tools that note when they start and end; each ends when those that should run beside it have begun."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.begun: dict[str, anyio.Event] = {}

    def tool(self, name: str, *, beside: tuple[str, ...] = (), read_only: bool = False) -> Any:
        self.begun[name] = anyio.Event()

        async def run(arguments: dict[str, Any]) -> str:
            self.log.append(f"{name} starts")
            self.begun[name].set()
            for other in beside:
                await self.begun[other].wait()
            await anyio.lowlevel.checkpoint()
            self.log.append(f"{name} ends")
            return name

        return tool(name, run, read_only=read_only)


async def test_read_only_calls_run_side_by_side_and_others_alone(tmp_path: Path) -> None:
    work = Clockwork()
    tools = [
        work.tool("grep", beside=("read",), read_only=True),
        work.tool("read", beside=("grep",), read_only=True),
        work.tool("write"),
        work.tool("find", beside=("list",), read_only=True),
        work.tool("list", beside=("find",), read_only=True),
    ]
    named = [(name, {}) for name in ("grep", "read", "write", "find", "list")]
    async with world(tmp_path, [all_call(*named), says("ok")], *tools) as w:
        await w.ask("go")
        assert sorted(work.log[:4]) == ["grep ends", "grep starts", "read ends", "read starts"]
        assert work.log[4:6] == ["write starts", "write ends"]
        assert sorted(work.log[6:]) == ["find ends", "find starts", "list ends", "list starts"]
        assert [text_of(o) for o in w.outputs()] == ["grep", "read", "write", "find", "list"]


async def test_with_parallel_tools_off_calls_run_one_after_the_other(tmp_path: Path) -> None:
    work = Clockwork()
    tools = [work.tool("a", read_only=True), work.tool("b", read_only=True)]
    script = [all_call(("a", {}), ("b", {})), says("ok")]
    async with world(tmp_path, script, *tools, parallel_tools=False) as w:
        await w.ask("go")
        assert work.log == ["a starts", "a ends", "b starts", "b ends"]


async def test_one_failing_member_of_a_group_does_not_disturb_the_others(tmp_path: Path) -> None:
    async def breaks(arguments: dict[str, Any]) -> Any:
        raise ToolFailed("broken")

    tools = [tool("bad", breaks, read_only=True), tool("good", says_done, read_only=True)]
    async with world(tmp_path, [all_call(("bad", {}), ("good", {})), says("ok")], *tools) as w:
        await w.ask("go")
        assert [(text_of(o), o.is_error) for o in w.outputs()] == [("broken", True), ("done", False)]


async def test_an_unknown_tool_is_answered_with_the_nearest_name_and_never_run(tmp_path: Path) -> None:
    ran: list[str] = []

    async def run(arguments: dict[str, Any]) -> str:
        ran.append("read_file")
        return "text"

    script = [all_call(("ReadFile", {}), ("read_fle", {}), ("nothing_like_it", {})), says("sorry")]
    async with world(tmp_path, script, tool("read_file", run)) as w:
        await w.ask("go")
        outputs = [text_of(o) for o in w.outputs()]
        assert "Did you mean 'read_file'?" in outputs[0]
        assert "Did you mean 'read_file'?" in outputs[1]
        assert "Did you mean" not in outputs[2]
        assert all(o.is_error for o in w.outputs())
        assert ran == []


async def test_arguments_that_are_no_object_are_refused_with_what_was_received(tmp_path: Path) -> None:
    script = [all_call(ScriptedCall("t", '["a"]'), ScriptedCall("t", '{"a": tru')), says("ok")]
    async with world(tmp_path, script, tool("t", says_done)) as w:
        await w.ask("go")
        first, second = (text_of(o) for o in w.outputs())
        assert "arguments must be one JSON object" in first
        assert "an array" in first
        assert "truncated after 9 characters" in second
        assert '{"a": tru' in second


async def test_missing_and_repeated_call_ids_are_replaced(tmp_path: Path) -> None:
    same = ScriptedCall("t", "{}", "call_1")
    script = [all_call(same, same, ScriptedCall("t", "{}")), all_call(same), says("ok")]
    async with world(tmp_path, script, tool("t", says_done)) as w:
        await w.ask("go")
        ids = [o.call_id for o in w.outputs()]
        assert ids[0] == "call_1"
        assert len(set(ids)) == 4
        asked = [c.call_id for m in w.model.requests[-1].messages for c in m.calls]
        assert asked == ids


async def test_calls_beyond_the_sixty_fourth_are_not_run(tmp_path: Path) -> None:
    ran: list[int] = []

    async def run(arguments: dict[str, Any]) -> str:
        ran.append(arguments["n"])
        return str(arguments["n"])

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    script = [all_call(*[("t", {"n": n}) for n in range(66)]), says("ok")]
    async with world(tmp_path, script, tool("t", run, schema=schema)) as w:
        await w.ask("go")
        assert ran == list(range(64))
        assert [o.is_error for o in w.outputs()] == [False] * 64 + [True] * 2


async def test_a_blank_answer_is_repeated_once_then_asked_for_without_tools(tmp_path: Path) -> None:
    async with world(tmp_path, [says(""), says(" \n"), says("Here it is")], tool("t", says_done)) as w:
        result = await w.ask("go")
        assert (result.stop, result.message.text) == ("completed", "Here it is")
        first, second, third = w.model.requests
        assert [m.text for m in second.messages] == [m.text for m in first.messages]
        assert second.tools.tools
        assert not third.tools.tools
        assert await w.history() == ["user: go", "assistant: Here it is"]


async def test_a_model_that_stays_silent_ends_the_turn_with_a_sentence(tmp_path: Path) -> None:
    async with world(tmp_path, [says(""), says(""), says("")]) as w:
        result = await w.ask("go")
        assert result.stop == "empty_final_response"
        assert result.message.text


async def test_calls_without_names_are_dropped_and_asked_for_again(tmp_path: Path) -> None:
    nameless = all_call(ScriptedCall("", "{}"))
    async with world(tmp_path, [nameless, nameless, says("Then without")], tool("t", says_done)) as w:
        result = await w.ask("go")
        assert result.message.text == "Then without"
        assert "had no names" in w.model.requests[1].messages[-1].text
        assert not w.model.requests[2].tools.tools


async def test_a_cut_answer_is_continued_three_times_and_shown_as_one(tmp_path: Path) -> None:
    cut = [says(f"part {n} ", finish="length") for n in range(4)]
    async with world(tmp_path, cut) as w:
        result = await w.ask("go")
        assert result.stop == "length"
        assert result.message.text == "part 0 part 1 part 2 part 3 "
        assert w.model.requests[1].messages[-2].text == "part 0 "
        assert "'part 0 '" in w.model.requests[1].messages[-1].text
        assert len(await w.history()) == 2


async def test_a_continued_answer_that_ends_is_complete(tmp_path: Path) -> None:
    async with world(tmp_path, [says("begin ", finish="length"), says("end")]) as w:
        result = await w.ask("go")
        assert (result.stop, result.message.text) == ("completed", "begin end")


async def test_a_call_that_was_cut_off_is_not_run_and_the_model_is_told(tmp_path: Path) -> None:
    cut = Step(calls=(ScriptedCall("t", '{"text": "lo'),), finish="length")
    async with world(tmp_path, [cut, calls("t"), says("ok")], tool("t", says_done)) as w:
        result = await w.ask("go")
        assert result.stop == "completed"
        assert "cut off" in w.model.requests[1].messages[-1].text
        assert len(w.outputs()) == 1


async def test_thinking_that_used_up_the_output_gets_more_room_once(tmp_path: Path) -> None:
    thinking = Step(reasoning="hm", finish="length")
    async with world(tmp_path, [thinking, says("42")], max_tokens=100) as w:
        result = await w.ask("go")
        assert result.message.text == "42"
        assert [r.max_tokens for r in w.model.requests] == [100, 200]


@pytest.mark.parametrize("finish", ["refusal", "content_filter"])
async def test_a_refusal_is_final_and_its_calls_are_not_run(tmp_path: Path, finish: Any) -> None:
    refused = Step(text="No.", calls=(ScriptedCall("t", "{}"),), finish=finish)
    async with world(tmp_path, [refused], tool("t", says_done)) as w:
        result = await w.ask("go")
        assert (result.stop, result.message.text) == (finish, "No.")
        assert "ToolStarted" not in w.kinds()


async def test_after_the_last_round_the_model_sums_up_without_tools(tmp_path: Path) -> None:
    script = [calls("t", n=1), calls("t", n=2), says("Two done, one open")]
    async with world(tmp_path, script, tool("t", says_done), max_iterations=2) as w:
        result = await w.ask("go")
        assert (result.stop, result.message.text) == ("max_iterations", "Two done, one open")
        assert "2 rounds" in result.error
        assert not w.model.requests[-1].tools.tools


async def test_when_summing_up_fails_a_sentence_names_the_limit(tmp_path: Path) -> None:
    script = [calls("t"), fails("server")]
    async with world(tmp_path, script, tool("t", says_done), max_iterations=1) as w:
        result = await w.ask("go")
        assert result.stop == "max_iterations"
        assert "1 rounds" in result.message.text


async def test_the_same_call_with_the_same_result_five_times_is_a_loop(tmp_path: Path) -> None:
    script = [*[calls("t", n=1)] * 5, says("It does not change")]
    async with world(tmp_path, script, tool("t", says_done)) as w:
        result = await w.ask("go")
        assert (result.stop, result.message.text) == ("loop_guard", "It does not change")


async def test_polling_until_something_changes_is_no_loop(tmp_path: Path) -> None:
    count = 0

    async def poll(arguments: dict[str, Any]) -> str:
        nonlocal count
        count += 1
        return f"{count // 4} ready"

    script = [*[calls("poll")] * 12, says("All ready")]
    async with world(tmp_path, script, tool("poll", poll)) as w:
        assert (await w.ask("go")).stop == "completed"


async def test_a_provider_error_keeps_everything_that_was_done(tmp_path: Path) -> None:
    script = [calls("t"), fails("authentication", "The key is wrong."), says("Now it works")]
    async with world(tmp_path, script, tool("t", says_done)) as w:
        result = await w.ask("first")
        assert result.stop == "error"
        assert "The key is wrong." in result.error
        assert (await w.ask("second")).message.text == "Now it works"
        assert await w.history() == [
            "user: first",
            "assistant: (ToolCall)",
            "user: done",
            "assistant: [Assistant reply unavailable due to model error.]",
            "user: second",
            "assistant: Now it works",
        ]


async def test_an_answer_that_broke_off_keeps_the_text_that_was_shown(tmp_path: Path) -> None:
    async with world(tmp_path, [cut_off("Half an ans")]) as w:
        result = await w.ask("go")
        assert result.stop == "error"
        assert result.message.text.startswith("Half an ans")


async def test_a_too_long_context_is_named_as_such(tmp_path: Path) -> None:
    async with world(tmp_path, [fails("context_length", "too long")]) as w:
        assert (await w.ask("go")).stop == "context_too_large"


async def test_tool_choice_holds_for_the_first_request_of_each_turn(tmp_path: Path) -> None:
    script = [calls("t"), says("a"), calls("t"), says("b")]
    async with world(tmp_path, script, tool("t", says_done), tool_choice="t") as w:
        await w.ask("one")
        await w.ask("two")
        assert [r.tool_choice for r in w.model.requests] == ["t", None, "t", None]


async def test_a_tool_choice_that_does_not_exist_fails_before_any_request(tmp_path: Path) -> None:
    async with world(tmp_path, [], tool("t", says_done), tool_choice="u") as w:
        result = await w.ask("go")
        assert result.stop == "error"
        assert "'u'" in result.error


SHAPE = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def test_structured_output_is_checked_and_given_as_data(tmp_path: Path) -> None:
    from nanobot.config.model import OutputSchema

    fenced = '```json\n{"n": 1}\n```'
    async with world(tmp_path, [says(fenced)], output=OutputSchema(schema=SHAPE)) as w:
        assert (await w.ask("go")).structured == {"n": 1}


async def test_output_of_the_wrong_shape_is_repaired_once(tmp_path: Path) -> None:
    from nanobot.config.model import OutputSchema

    output = OutputSchema(schema=SHAPE)
    async with world(tmp_path, [says('{"n": "one"}'), says('{"n": 1}')], output=output) as w:
        result = await w.ask("go")
        assert (result.stop, result.structured) == ("completed", {"n": 1})
        assert "/n" in w.model.requests[1].messages[-1].text
        assert await w.history() == ["user: go", 'assistant: {"n": 1}']


async def test_output_that_stays_wrong_is_told_as_such_and_its_text_kept(tmp_path: Path) -> None:
    from nanobot.config.model import OutputSchema

    output = OutputSchema(schema=SHAPE)
    async with world(tmp_path, [says("one"), says("two")], output=output) as w:
        result = await w.ask("go")
        assert (result.stop, result.structured) == ("output_invalid", None)
        assert result.message.text == "one"


async def test_the_beginning_of_a_request_stays_the_same_objects(tmp_path: Path) -> None:
    class Keeps:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        async def respond(self, request: Any, emit: Any) -> Any:
            self.seen.append((request.tools, [*request.messages]))
            return await self.script.respond(request, emit)

    from nanobot.llm.scripted import ScriptedModel

    model = Keeps()
    model.script = ScriptedModel([calls("t"), says("a"), says("b")])
    async with world(tmp_path, [], tool("t", says_done), model=model) as w:
        await w.ask("one")
        await w.ask("two")
    (tools, first), (_, _), (again, last) = model.seen
    assert tools is again
    assert all(a is b for a, b in zip(first, last, strict=False))


async def test_instructions_keep_what_is_no_variable_of_ours(tmp_path: Path) -> None:
    text = "In ${CITY}: run `echo ${HOME_OF_NOBODY}` and ${A_${CITY}}, ${X:-else}."
    async with world(tmp_path, [says("ok")], instructions=text) as w:
        await w.ask("go")
        sent = w.model.requests[0].instructions
        assert sent == "In Bern: run `echo ${HOME_OF_NOBODY}` and ${A_Bern}, else."


async def test_long_results_are_cut_and_kept_in_a_file(tmp_path: Path) -> None:
    async def long(arguments: dict[str, Any]) -> str:
        return "start\n" + "ä" * 60_000 + "\nend"

    async with world(tmp_path, [calls("long"), says("ok")], tool("long", long)) as w:
        await w.ask("go")
        [output] = w.outputs()
        shown = text_of(output)
        assert shown.startswith("start\n")
        path = Path(shown.rpartition("[Truncated: full output available at ")[2].removesuffix("]"))
        assert path.is_relative_to(tmp_path / "files" / await w.thread() / "truncated-outputs")
        assert path.read_text() == "start\n" + "ä" * 60_000 + "\nend"
        assert path.stat().st_mode & 0o777 == 0o600
        assert "\nend" in shown


async def test_agents_are_tools_that_see_only_their_prompt(tmp_path: Path) -> None:
    scripts = {
        "main": [calls("chat-with-expert", prompt="What is 6 x 7?"), says("It is 42")],
        "expert": [says("42")],
    }
    expert = Agent(id="expert", description="Knows numbers", model="m")
    async with world(tmp_path, scripts, agents=[expert], agents_of_main=("expert",)) as w:
        result = await w.ask("A secret question")
        assert result.message.text == "It is 42"
        [request] = w.models["expert"].requests
        assert [m.text for m in request.messages] == ["What is 6 x 7?"]
        [output] = w.outputs()
        assert (output.agent, output.stop_reason, text_of(output)) == ("expert", "completed", "42")
        assert result.usage.requests == 3


async def test_agents_that_ask_each_other_without_end_are_stopped(tmp_path: Path) -> None:
    ask = {"main": "other", "other": "main"}
    scripts = {
        name: [step for _ in range(4) for step in (calls(f"chat-with-{other}", prompt="your turn"),)]
        + [says("enough")] * 4
        for name, other in ask.items()
    }
    other = Agent(id="other", agents=("main",))
    async with world(tmp_path, scripts, agents=[other], agents_of_main=("other",), all_used=False) as w:
        result = await w.ask("go")
        assert result.stop == "completed"
        refused = [
            text_of(item)
            for model in w.models.values()
            for request in model.requests
            for message in request.messages
            for item in message.items
            if isinstance(item, ToolOutput) and "already working on this" in text_of(item)
        ]
        assert refused
        assert len(w.models["main"].requests) <= 7
