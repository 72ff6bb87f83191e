"""Calls of an agent with approvals: run, refused, or put to the person, who answers through their client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.agent.world import says_done, text_of, tool, world

from nanobot.agent.input import Input
from nanobot.builtin.system import system_server
from nanobot.config.approvals import Approvals, Contains, Equals, Rule, StartsWith
from nanobot.config.builtin import SYSTEM
from nanobot.config.places import Reference
from nanobot.llm.scripted import calls, says
from nanobot.wire.call import Call, Caller
from nanobot.wire.rpc import INTERNAL_ERROR, Payload, RpcError

pytestmark = pytest.mark.anyio

RULES = Approvals(
    rules=(
        Rule(target=Reference("tools", "look"), allow=True, when={"at": Equals("sky")}),
        Rule(target=Reference("tools", "break"), allow=False),
    )
)


class Person:
    """Whoever sits behind the conversation; answers each question with the next of `answers`."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    async def ask(self, method: str, params: Payload) -> Payload:
        assert method == "elicitation/create"
        self.asked.append(params.object())
        answer = self.answers.pop(0)
        if isinstance(answer, RpcError):
            raise answer
        return Payload.of(answer)

    def call(self, **capabilities: Any) -> Call:
        return Call(caller=Caller(capabilities=capabilities or {"elicitation": {}}), ask=self.ask)


def yes(how: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"decision": how}}


def look(at: str) -> Any:
    return calls("look", at=at)


LOOK = tool("look", says_done)
BREAK = tool("break", says_done)


async def test_rules_decide_without_asking(tmp_path: Path) -> None:
    person = Person()
    steps = [look("sky"), calls("break"), says("Well.")]
    async with world(tmp_path, steps, LOOK, BREAK, tool_approvals=RULES) as here:
        await here.ask(call=person.call())
        [allowed, refused] = here.outputs()
    assert (text_of(allowed), allowed.is_error) == ("done", False)
    assert refused.is_error
    assert "'break' was not run" in text_of(refused)
    assert person.asked == []


async def test_what_no_rule_decides_is_asked_with_its_arguments(tmp_path: Path) -> None:
    person = Person(yes("once"), yes("once"))
    steps = [look("sea"), look("sea"), says("Well.")]
    async with world(tmp_path, steps, LOOK, tool_approvals=RULES) as here:
        await here.ask(call=person.call())
        assert [text_of(output) for output in here.outputs()] == ["done", "done"]
    assert len(person.asked) == 2
    assert '"at": "sea"' in person.asked[0]["message"]
    assert person.asked[0]["requestedSchema"]["properties"]["decision"]["enum"][0] == "once"


async def test_an_approval_for_the_conversation_is_for_the_same_call_alone(tmp_path: Path) -> None:
    person = Person(yes("conversation"), yes("no"))
    steps = [look("sea"), look("sea"), look("land"), says("Well.")]
    async with world(tmp_path, steps, LOOK, tool_approvals=RULES) as here:
        await here.ask(call=person.call())
        assert [output.is_error for output in here.outputs()] == [False, False, True]
    assert len(person.asked) == 2


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "decline"},
        {"action": "cancel"},
        yes("no"),
        {"action": "accept", "content": {}},
        {"action": "accept"},
        RpcError(INTERNAL_ERROR, "gone"),
    ],
)
async def test_anything_but_a_yes_is_a_no(answer: Any, tmp_path: Path) -> None:
    async with world(tmp_path, [look("sea"), says("Well.")], LOOK, tool_approvals=RULES) as here:
        result = await here.ask(call=Person(answer).call())
        [output] = here.outputs()
    assert output.is_error
    assert "'look' was not run" in text_of(output)
    assert result.stop == "completed"


async def test_where_nobody_can_be_asked_the_answer_is_no(tmp_path: Path) -> None:
    async with world(tmp_path, [look("sea"), says("Well.")] * 2, LOOK, tool_approvals=RULES) as here:
        for call in (None, Person().call(sampling={})):
            await here.ask(call=call)
            assert "nobody can be asked" in text_of(here.outputs()[-1])


async def test_handing_work_to_another_agent_is_a_call_too(tmp_path: Path) -> None:
    from nanobot.config.model import Agent

    person = Person({"action": "decline"})
    steps = {"main": [calls("chat-with-helper", prompt="Do it."), says("Well.")]}
    agents = [Agent(id="helper")]
    async with world(
        tmp_path, steps, agents=agents, agents_of_main=("helper",), tool_approvals=RULES
    ) as here:
        await here.ask(call=person.call())
        [output] = here.outputs()
    assert output.is_error
    assert "chat-with-helper" in person.asked[0]["message"]


@pytest.mark.parametrize(
    "given",
    [
        {"tools": (Reference("tools", "look", "see"),), "mcp_servers": ()},
        {"tools": (), "mcp_servers": (Reference("tools", "look", "see"),)},
        {"tools": (Reference("tools", None, "see"),), "mcp_servers": ()},
    ],
)
async def test_a_rule_is_about_the_tool_whatever_it_is_called_here(given: Any, tmp_path: Path) -> None:
    refused = Approvals(rules=(Rule(target=Reference("tools", "look"), allow=False),))
    steps = [calls("see", at="sea"), says("Well.")]
    async with world(tmp_path, steps, LOOK, tool_approvals=refused, **given) as here:
        await here.ask()
        [output] = here.outputs()
    assert "approval for it is refused" in text_of(output)


async def test_an_agent_among_the_tools_is_meant_by_its_name(tmp_path: Path) -> None:
    from nanobot.config.model import Agent

    refused = Approvals(rules=(Rule(target=Reference("team/helper"), allow=False),))
    for alias, called in ((None, "chat-with-team-helper"), ("help", "help")):
        steps = {"main": [calls(called, prompt="Do it."), says("Well.")]}
        tools = (Reference("team/helper", None, alias),)
        agents = [Agent(id="team/helper")]
        home = tmp_path / called
        home.mkdir()
        async with world(home, steps, agents=agents, tools=tools, tool_approvals=refused) as here:
            await here.ask()
            [output] = here.outputs()
        assert "approval for it is refused" in text_of(output)


@pytest.mark.parametrize(
    "arguments",
    [
        {"prompt": "Delete it."},
        {"promt": "Delete it."},
        {"prompt": "Look.", "then": "Delete it."},
    ],
)
async def test_whatever_an_agent_is_told_is_its_prompt(arguments: Any, tmp_path: Path) -> None:
    from nanobot.config.model import Agent

    target = Reference("helper")
    rules = Approvals(
        rules=(
            Rule(target=target, allow=False, when={"prompt": Contains("Delete")}),
            Rule(target=target, allow=True, when={"prompt": StartsWith("Look")}),
        )
    )
    ways: list[dict[str, Any]] = [{"agents_of_main": ("helper",)}, {"tools": (target,)}]
    for given in ways:
        steps = {"main": [calls("chat-with-helper", **arguments), says("Well.")]}
        home = tmp_path / next(iter(given))
        home.mkdir()
        async with world(home, steps, agents=[Agent(id="helper")], tool_approvals=rules, **given) as here:
            await here.ask()
            [output] = here.outputs()
        assert "approval for it is refused" in text_of(output)


async def test_what_is_asked_shows_the_arguments_of_the_tool_first_and_says_what_it_leaves_out(
    tmp_path: Path,
) -> None:
    schema = {"type": "object", "properties": {"note": {"type": "string"}, "at": {"type": "string"}}}
    hidden = {"x": "y" * 50_000, "at": "sea\u202e\x9b31m", "note": "n" * 30_000 + "end"}
    person = Person(yes("once"), yes("once"))
    many = {f"x{i}": "y" * 3000 for i in range(20)}
    steps = [calls("look", **hidden), calls("look", **many, at="sea"), says("Well.")]
    async with world(tmp_path, steps, tool("look", says_done, schema=schema), tool_approvals=RULES) as here:
        await here.ask(call=person.call())
    first, second = (one["message"] for one in person.asked)
    assert len(first) < 20_000
    assert "NOT SHOWN are 26005 characters of 'note', 46002 characters of 'x'." in first
    assert '"at": "sea\\u202e\\u009b31m"' in first
    assert 'nend"' in first
    assert first.index('"note"') < first.index('"at"') < first.index('"x"')
    assert "NOT SHOWN are 15 whole arguments." in second
    assert '"at": "sea"' in second


async def test_without_a_conversation_nothing_is_allowed_for_one(tmp_path: Path) -> None:
    person = Person(yes("conversation"), yes("no"))
    steps = [look("sea"), says("Well."), look("sea"), says("Well.")]
    async with world(tmp_path, steps, LOOK, tool_approvals=RULES) as here:
        for expected in (False, True):
            await here.engine.once("main", Input(text="Hello"), call=person.call())
            assert here.outputs()[-1].is_error is expected
    choices = [one["requestedSchema"]["properties"]["decision"]["enum"] for one in person.asked]
    assert choices == [["once", "no"]] * 2


async def test_where_no_folder_was_chosen_paths_begin_at_the_files_of_the_conversation(
    tmp_path: Path,
) -> None:
    refused = Approvals(
        rules=(
            Rule(target=Reference(SYSTEM, "read"), allow=False, when={"file_path": StartsWith("secret/")}),
            Rule(target=Reference(SYSTEM, "read"), allow=True),
        )
    )
    call = Call(caller=Caller(session="s1"))
    secret = tmp_path / "files" / "s1" / "secret" / "x"
    secret.parent.mkdir(parents=True)
    secret.write_text("hidden")
    server = system_server(home=tmp_path, sandbox=None, env={})
    steps = [calls("read", file_path=str(secret)), calls("read", file_path="secret/x"), says("Well.")]
    sources = {server.name: server}
    async with world(tmp_path, steps, sources=sources, tool_approvals=refused) as here:
        await here.engine.once("main", Input(text="Hello"), call=call)
        assert ["is refused" in text_of(output) for output in here.outputs()] == [True, True]
