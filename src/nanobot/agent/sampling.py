"""Answering servers that ask for a model: which agent lends its model, what it is sent, what comes back.

The agent's model answers once. Nothing is stored, none of the agent's tools is offered, and tools that the
server brings along are called by the server itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, cast

import anyio
import msgspec

from nanobot.agent.approval.gate import can_be_asked
from nanobot.agent.hooked_model import HookedModel
from nanobot.agent.instructions import expand_leniently
from nanobot.config import builtin
from nanobot.config.model import Agent, Config, McpServer
from nanobot.errors import NanobotError
from nanobot.hub.hooks.events import EventHooks
from nanobot.ids import new_id
from nanobot.llm.messages import Content, Item, Message, Text, ToolCall, ToolOutput
from nanobot.llm.model import ModelRequest, ModelResponse, ToolSet, ToolSpec
from nanobot.llm.router import Chosen
from nanobot.llm.tool_names import wire_names
from nanobot.narrow import list_of, object_of, objects_of
from nanobot.wire.call import Ask, Call
from nanobot.wire.rpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, Payload, RpcError

MOST_MESSAGES: Final = 1000
_MOST_REMEMBERED: Final = 1000
_STOP_REASONS: Final = {"stop": "endTurn", "length": "maxTokens", "tool_calls": "toolUse"}
_TOOL_CHOICES: Final = ("auto", "required", "none")

Json = Mapping[str, Any]


class ModelChoice(Protocol):
    def choose(self, agent: Agent) -> Chosen: ...


class AgentSampler:
    """Satisfies `Sampler`. `hooks` are the `request` and `response` hooks of agents, by id."""

    def __init__(self, config: Config, models: ModelChoice, hooks: Mapping[str, EventHooks]) -> None:
        self._config = config
        self._agents = candidates(config)
        self._models = models
        self._hooks = hooks
        self._asking = anyio.Lock()
        self._decided: OrderedDict[tuple[str, str, str], bool] = OrderedDict()

    async def create(self, server: McpServer, params: Payload, call: Call) -> Payload:
        """The answer to a `sampling/createMessage` of `server`. Raises `RpcError`."""
        wish = params.object()
        _check(wish)
        messages = _messages(wish.get("messages"))
        agent = choose_agent(self._agents, wish.get("modelPreferences"))
        if agent is None:
            raise RpcError(METHOD_NOT_FOUND, "there is no agent here that answers sampling")
        await self._check_allowed(server, call)
        tools, names = _tools(wish.get("tools"))
        try:
            chosen = self._models.choose(agent)
            request = ModelRequest(
                model=chosen.name,
                messages=messages,
                instructions=self._instructions(agent, wish),
                tools=tools,
                tool_choice=_tool_choice(wish.get("toolChoice")) if tools.tools else None,
                temperature=_number(wish, "temperature", agent.temperature),
                top_p=agent.top_p,
                max_tokens=_limit(wish, server),
                stop=tuple(str(one) for one in list_of(wish.get("stopSequences"))),
                effort=agent.reasoning.effort if agent.reasoning else None,
            )
            hooks = self._hooks.get(agent.id)
            model = chosen.model
            if hooks is not None and hooks.has("request", "response"):
                model = HookedModel(chosen, hooks, agent.id, call)
            response = await model.respond(request, _nobody)
        except NanobotError as e:
            raise RpcError(INTERNAL_ERROR, f"the model of agent {agent.id!r} could not answer: {e}") from e
        return Payload.of(_result(response, names))

    def _instructions(self, agent: Agent, wish: Json) -> str:
        """The server's own system prompt, never expanded; else the agent's, if that is a text."""
        own = wish.get("systemPrompt")
        if isinstance(own, str) and own:
            return own
        written = agent.instructions
        return expand_leniently(written, self._config.env) if isinstance(written, str) else ""

    async def _check_allowed(self, server: McpServer, call: Call) -> None:
        """Of a server with `sampling: ask`, have the person decide, once per session. Raises `RpcError`."""
        if server.sampling != "ask":
            return
        session = call.caller.session or call.thread
        key = (call.caller.account, session or "", server.name)
        if call.ask is None or not can_be_asked(call):
            is_allowed = self._decided.get(key, False)
        else:
            async with self._asking:  # two at once are one question
                is_allowed = self._decided.get(key)
                if is_allowed is None:
                    is_allowed = await _is_allowed(server, call.ask)
                    if session:  # of a caller without one nobody could say whom it was allowed
                        self._decided[key] = is_allowed
                        if len(self._decided) > _MOST_REMEMBERED:
                            self._decided.popitem(last=False)
        if not is_allowed:
            raise RpcError(METHOD_NOT_FOUND, "nobody has allowed this server to use a model")


def candidates(config: Config) -> tuple[Agent, ...]:
    """The agents that answer for servers: those that somebody configured, in the order of their ids."""
    return tuple(config.agents[id_] for id_ in sorted(config.agents) if id_ != builtin.AGENT)


def choose_agent(agents: Sequence[Agent], preferences: object) -> Agent | None:
    """The agent that fits the server's preferences best; None if there is none.

    By the first hint that is an agent's id, else one of its aliases, else part of its model's name; else the
    one whose scores weigh most. A priority that is not given counts 1.
    """
    wanted = object_of(preferences)
    hints = [str(hint.get("name", "")) for hint in objects_of(wanted.get("hints"))]
    for hint in filter(None, hints):
        if (found := next((agent for agent in agents if agent.id == hint), None)) is not None:
            return found
    for hint in filter(None, hints):
        if (found := next((agent for agent in agents if hint in agent.aliases), None)) is not None:
            return found
    for hint in filter(None, hints):
        name = hint.lower()
        if (found := next((agent for agent in agents if name in agent.model.lower()), None)) is not None:
            return found

    def score(agent: Agent) -> float:
        return (
            agent.cost * _number(wanted, "costPriority", 1.0)
            + agent.speed * _number(wanted, "speedPriority", 1.0)
            + agent.intelligence * _number(wanted, "intelligencePriority", 1.0)
        )

    return max(agents, key=score, default=None)  # of equals the first by id


async def _is_allowed(server: McpServer, ask: Ask) -> bool:
    question: dict[str, Any] = {
        "message": f"The MCP server {server.name!r} wants to use a model. Allow it for this session?",
        "requestedSchema": {"type": "object", "properties": {}},
    }
    answer = await ask("elicitation/create", Payload.of(question))
    return answer.object().get("action") == "accept"


def _messages(written: object) -> list[Message]:
    if not isinstance(written, list) or not written:
        raise RpcError(INVALID_PARAMS, "sampling needs `messages`, a list that is not empty")
    given = cast("list[object]", written)
    if len(given) > MOST_MESSAGES:
        raise RpcError(INVALID_PARAMS, f"sampling takes at most {MOST_MESSAGES} messages")
    called: set[str] = set()
    return [_message(one, called) for one in given]


def _message(written: object, called: set[str]) -> Message:
    message = object_of(written)
    role: Any = message.get("role", "user")
    if role not in ("user", "assistant"):
        raise RpcError(INVALID_PARAMS, "the role of a message is `user` or `assistant`")
    content: Any = message.get("content")
    blocks = objects_of(cast("object", content)) or objects_of([content])
    items = tuple(_item(block, called) for block in blocks)
    if not items:
        raise RpcError(INVALID_PARAMS, "a message needs content")
    return Message(new_id("msg"), role, items)


def _item(block: Json, called: set[str]) -> Item:
    match block.get("type"):
        case "text":
            return Text(new_id("item"), str(block.get("text", "")))
        case "tool_use":
            called.add(str(block.get("id")))
            arguments = msgspec.json.encode(block.get("input") or {}).decode()
            return ToolCall(new_id("item"), str(block.get("id")), str(block.get("name")), arguments)
        case "tool_result":
            if (call_id := str(block.get("toolUseId"))) not in called:
                raise RpcError(INVALID_PARAMS, f"there is no tool use {call_id!r} before its result")
            return ToolOutput(
                new_id("item"),
                call_id,
                [dict(one) for one in objects_of(block.get("content"))],
                is_error=block.get("isError") is True,
                structured=block.get("structuredContent"),
            )
        case "image" | "audio" | "resource" | "resource_link":
            return Content(new_id("item"), dict(block))
        case other:
            raise RpcError(INVALID_PARAMS, f"content of the type {other!r} cannot be sent to a model")


def _check(wish: Json) -> None:
    """Refuse what would otherwise be overlooked; the messages are looked at by themselves.

    Raises `RpcError` (-32602) naming the member.
    """
    tools = wish.get("tools")
    for i, tool in enumerate(list_of(tools)):
        fields = object_of(tool)
        _want(isinstance(fields.get("name"), str) and fields["name"], f"tools[{i}].name", "a name")
        _want(_is(dict, fields.get("inputSchema")), f"tools[{i}].inputSchema", "an object")
    choice, limit, stops = wish.get("toolChoice"), wish.get("maxTokens"), wish.get("stopSequences")
    mode = object_of(choice).get("mode")
    modes = " or ".join(_TOOL_CHOICES)
    temperature = wish.get("temperature")
    _want(_is(list, tools), "tools", "a list")
    _want(_is(dict, choice), "toolChoice", f"an object with the mode {modes}")
    _want(mode is None or mode in _TOOL_CHOICES, "toolChoice.mode", modes)
    _want(limit is None or (type(limit) is int and limit > 0), "maxTokens", "a whole number above 0")
    _want(_is(list, stops) and all(isinstance(one, str) for one in list_of(stops)), "stopSequences", "texts")
    _want(temperature is None or type(temperature) in (int, float), "temperature", "a number")
    _want(_is(str, wish.get("systemPrompt")), "systemPrompt", "a text")
    _want(_is(dict, wish.get("modelPreferences")), "modelPreferences", "an object")


def _is(kind: type, value: object) -> bool:
    return value is None or isinstance(value, kind)


def _want(holds: object, member: str, expected: str) -> None:
    if not holds:
        raise RpcError(INVALID_PARAMS, f"sampling/createMessage: {member} must be {expected}")


def _tools(written: object) -> tuple[ToolSet, Mapping[str, str]]:
    """The server's tools for the model, and their names by those the model uses."""
    tools = {str(tool.get("name")): tool for tool in objects_of(written)}
    wires = wire_names([*tools])
    specs = tuple(
        ToolSpec(
            wires[name], str(tool.get("description") or ""), tool.get("inputSchema") or {"type": "object"}
        )
        for name, tool in tools.items()
    )
    return ToolSet(specs), {wire: name for name, wire in wires.items()}


def _tool_choice(written: object) -> str | None:
    mode = object_of(written).get("mode")
    return mode if mode in _TOOL_CHOICES else None


def _limit(wish: Json, server: McpServer) -> int:
    asked = wish.get("maxTokens")
    most = server.sampling_max_tokens
    return min(asked, most) if isinstance(asked, int) and asked > 0 else most


def _number(wish: Json, key: str, otherwise: Any) -> Any:
    value = wish.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else otherwise


def _result(response: ModelResponse, names: Mapping[str, str]) -> dict[str, Any]:
    content = [*_blocks(response.items, names)] or [{"type": "text", "text": "[NO CONTENT]"}]
    return {
        "role": "assistant",
        "model": response.model,
        "stopReason": _STOP_REASONS.get(response.finish, response.finish),
        # One block stands alone: servers of older revisions know no lists here.
        "content": content[0] if len(content) == 1 else content,
    }


def _blocks(items: Sequence[Item], names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for item in items:
        match item:
            case Text(text=text) if text.strip():
                yield {"type": "text", "text": text}
            case Content(body=body):
                yield body
            case ToolCall(call_id=call_id, name=name, arguments=arguments):
                yield {
                    "type": "tool_use",
                    "id": call_id,
                    "name": names.get(name, name),
                    "input": _input(arguments),
                }
            case _:
                pass


def _input(arguments: str) -> Any:
    try:
        return msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return {}


def _nobody(_: object) -> None:
    """What a server asked for is shown to nobody while it is written."""
