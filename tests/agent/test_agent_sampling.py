"""What a model is sent for a server that wants one, which agent lends it, and what the server gets back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nanobot.agent.sampling import AgentSampler, candidates, choose_agent
from nanobot.config.model import Agent, Config, McpServer
from nanobot.llm.messages import Content, ToolCall, ToolOutput
from nanobot.llm.router import Chosen
from nanobot.llm.scripted import ScriptedModel, Step, calls, fails, says
from nanobot.wire.call import Call
from nanobot.wire.rpc import INTERNAL_ERROR, INVALID_PARAMS, Payload, RpcError

pytestmark = pytest.mark.anyio

SERVER = McpServer(name="s", sampling_max_tokens=500)
HELLO = [{"role": "user", "content": {"type": "text", "text": "Hello"}}]


@dataclass
class Choice:
    model: ScriptedModel

    def choose(self, agent: Agent) -> Chosen:
        return Chosen(model=self.model, name="m", provider="scripted", scope="scripted")


async def asked(home: Path, wish: dict[str, Any], *steps: Step, **agent: Any) -> tuple[Any, ScriptedModel]:
    model = ScriptedModel(steps)
    config = Config(home=home, agents={"a": Agent(id="a", **agent)}, env={"SECRET": "s3cret"})
    sampler = AgentSampler(config, Choice(model), {})
    answer = await sampler.create(SERVER, Payload.of({"messages": HELLO, "maxTokens": 100} | wish), Call())
    return answer.object(), model


async def test_a_plain_question(tmp_path: Path) -> None:
    answer, model = await asked(tmp_path, {"temperature": 0, "stopSequences": ["x"]}, says("Hi"))
    assert answer["role"] == "assistant"
    assert answer["content"] == {"type": "text", "text": "Hi"}
    assert answer["stopReason"] == "endTurn"
    [request] = model.requests
    assert (request.temperature, request.max_tokens, request.stop) == (0, 100, ("x",))


async def test_the_budget_caps_what_is_asked_or_left_out(tmp_path: Path) -> None:
    for wanted in ({"maxTokens": 10_000}, {"maxTokens": None}):
        _, model = await asked(tmp_path, wanted, says("Hi"))
        assert model.requests[0].max_tokens == 500


async def test_a_system_prompt_of_the_server_is_never_expanded(tmp_path: Path) -> None:
    agent = {"instructions": "I know ${SECRET}"}
    _, model = await asked(tmp_path, {"systemPrompt": "tell ${SECRET}"}, says("Hi"), **agent)
    assert model.requests[0].instructions == "tell ${SECRET}"
    _, model = await asked(tmp_path, {}, says("Hi"), **agent)
    assert model.requests[0].instructions == "I know s3cret"


async def test_tools_of_the_server_come_back_as_its_calls(tmp_path: Path) -> None:
    tools = [{"name": "dot.ted", "description": "d", "inputSchema": {"type": "object"}}]
    wish = {"tools": tools, "toolChoice": {"mode": "required"}}
    answer, model = await asked(tmp_path, wish, calls("dot_ted", x=1))
    assert (answer["content"]["type"], answer["content"]["name"]) == ("tool_use", "dot.ted")
    assert answer["content"]["input"] == {"x": 1}
    assert answer["stopReason"] == "toolUse"
    assert model.requests[0].tool_choice == "required"


async def test_a_conversation_with_tools_and_pictures(tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "1", "name": "look", "input": {"x": 1}}
    result = {"type": "tool_result", "toolUseId": "1", "content": [{"type": "text", "text": "seen"}]}
    picture = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": result},
    ]
    _, model = await asked(tmp_path, {"messages": messages}, says("A cat."))
    items = [item for message in model.requests[0].messages for item in message.items]
    assert [type(item) for item in items[1:]] == [Content, ToolCall, ToolOutput]


@pytest.mark.parametrize(
    "messages",
    [
        None,
        [],
        "hello",
        [{"role": "system", "content": {"type": "text", "text": "x"}}],
        [{"role": "user", "content": {"type": "tool_result", "toolUseId": "9", "content": []}}],
        [{"role": "user", "content": {"type": "riddle"}}],
        [{"role": "user"}],
        [{"role": "user", "content": {"type": "text", "text": "x"}}] * 1001,
    ],
)
async def test_what_makes_no_sense_is_refused(messages: Any, tmp_path: Path) -> None:
    with pytest.raises(RpcError) as refusal:
        await asked(tmp_path, {"messages": messages}, says("never"))
    assert refusal.value.rpc_code == INVALID_PARAMS


SENSELESS: list[tuple[dict[str, Any], str]] = [
    ({"maxTokens": -1}, "maxTokens"),
    ({"maxTokens": 0}, "maxTokens"),
    ({"maxTokens": "many"}, "maxTokens"),
    ({"maxTokens": True}, "maxTokens"),
    ({"tools": [{"name": "ok", "inputSchema": {}}, {"name": 5}]}, "tools[1].name"),
    ({"tools": [{"name": "x", "inputSchema": "y"}]}, "tools[0].inputSchema"),
    ({"tools": ["x"]}, "tools[0].name"),
    ({"tools": {}}, "tools"),
    ({"toolChoice": 7}, "toolChoice"),
    ({"toolChoice": {"mode": "maybe"}}, "toolChoice.mode"),
    ({"toolChoice": {"mode": []}}, "toolChoice.mode"),
    ({"stopSequences": [1]}, "stopSequences"),
    ({"stopSequences": "x"}, "stopSequences"),
    ({"temperature": "hot"}, "temperature"),
    ({"systemPrompt": 5}, "systemPrompt"),
    ({"modelPreferences": []}, "modelPreferences"),
]


@pytest.mark.parametrize(("wish", "member"), SENSELESS)
async def test_a_member_that_makes_no_sense_is_refused_by_its_name(
    wish: dict[str, Any], member: str, tmp_path: Path
) -> None:
    with pytest.raises(RpcError) as refusal:
        await asked(tmp_path, wish, says("never"))
    assert refusal.value.rpc_code == INVALID_PARAMS
    assert refusal.value.message.startswith(f"sampling/createMessage: {member} must be")


async def test_a_model_that_fails_is_an_error_that_names_the_agent(tmp_path: Path) -> None:
    with pytest.raises(RpcError, match="agent 'a'") as refusal:
        await asked(tmp_path, {}, fails("authentication", "The key is wrong."))
    assert refusal.value.rpc_code == INTERNAL_ERROR


def test_the_agent_that_fits_best() -> None:
    a = Agent(id="a", cost=1, speed=5, model="openai/gpt-large", aliases=("quick", "b"))
    b = Agent(id="b", cost=9)

    def chosen(**preferences: Any) -> str | None:
        agent = choose_agent((a, b), preferences)
        return agent.id if agent else None

    assert chosen() == "b"
    assert chosen(costPriority=1, speedPriority=0.1) == "b"
    assert chosen(costPriority=0, speedPriority=2) == "a"
    assert chosen(hints=[{"name": "none"}, {"name": "b"}]) == "b"
    assert chosen(hints=[{"name": "quick"}]) == "a"
    assert chosen(hints=[{"name": "GPT"}]) == "a"
    assert choose_agent((), None) is None


def test_only_agents_that_somebody_configured_answer(tmp_path: Path) -> None:
    config = Config(home=tmp_path, agents={id: Agent(id=id) for id in ("nanobot", "z", "a")})
    assert [agent.id for agent in candidates(config)] == ["a", "z"]
