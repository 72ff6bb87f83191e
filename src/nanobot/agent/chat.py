"""The front door for programs that call agents as tools: which thread, what is reported, what comes back.

A call in an MCP session continues the thread of that session. A call without a session begins a thread and
gets its id in the result; the next call sends that id to continue. An agent with `chat: false`, and any agent
that another one asks, answers once and remembers nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio

from nanobot.agent.assignment import TurnResult
from nanobot.agent.delegation import refusal
from nanobot.agent.events import Body, Delta, MessageAdded, ToolFinished, ToolStarted, TurnStarted
from nanobot.agent.handles import OnEvent
from nanobot.agent.input import Input, chat_input
from nanobot.builtin.agents import ChatReply, Tell
from nanobot.config.model import Agent
from nanobot.errors import NotFound
from nanobot.llm.messages import Message, item_json, output_json
from nanobot.llm.model import ArgumentsDelta, ReasoningDelta, TextDelta
from nanobot.store.rows import ThreadRow
from nanobot.wire.call import Call
from nanobot.wire.rpc import INVALID_PARAMS, RpcError
from nanobot.wire.versions import META_SESSION

if TYPE_CHECKING:
    from nanobot.agent.engine import Engine


class AgentChats:
    """Satisfies `builtin.agents.Chat`: answers calls of the tools `chat-with-<agent>`."""

    def __init__(self, engine: Engine, agents: Mapping[str, Agent]) -> None:
        self._engine = engine
        self._agents = agents

    async def chat(
        self, agent: str, arguments: Mapping[str, Any], *, call: Call, tell: Tell | None
    ) -> ChatReply:
        """Have the agent with this id answer. Raises `RpcError` for an unknown thread, `UsageError`."""
        asked, engine = self._agents[agent], self._engine
        if (reason := refusal(call.agents, agent)) is not None:
            return ChatReply(content=[{"type": "text", "text": reason}], is_error=True)
        input = chat_input(arguments)
        on_event = None if tell is None else _Telling(tell).tell
        if call.agents or not asked.chat:
            return _reply(await engine.once(agent, input, call=call, on_event=on_event))
        row, is_told = await _thread(engine, asked, call)
        result = await _turn(engine, row, asked, input, call, on_event)
        return _reply(result, thread=row.id if is_told else "")


async def _thread(engine: Engine, agent: Agent, call: Call) -> tuple[ThreadRow, bool]:
    """The thread to go on with, and whether the client needs its id to come back to it."""
    account = call.caller.account
    asked = call.meta.get(META_SESSION)
    if asked:
        try:
            return await engine.open_thread(id=str(asked), account=account), True
        except NotFound as e:
            raise RpcError(INVALID_PARAMS, "unknown session") from e
    caller = call.caller
    key = f"mcp:{caller.session}" if caller.session else None
    row = await engine.open_thread(
        key=key, account=account, agent=caller.agent or agent.id, kind="api", title=caller.title
    )
    return row, caller.session is None


async def _turn(
    engine: Engine, row: ThreadRow, agent: Agent, input: Input, call: Call, on_event: OnEvent | None
) -> TurnResult:
    turn = await engine.submit(row.id, input, agent=agent.id, call=call, on_event=on_event)
    try:
        return await turn.wait()
    except anyio.get_cancelled_exc_class():
        turn.on_event = None
        has_left = call.deferral is not None and call.deferral.is_taken
        if call.caller.era == "legacy" or has_left:
            # A legacy client cancels with a message of its own. In the modern era a lost connection looks the
            # same as a cancellation, and a client that lost it can come back to the thread.
            turn.cancel("request cancelled by client")
        raise


def _reply(result: TurnResult, *, thread: str = "") -> ChatReply:
    text = result.text
    content = [{"type": "text", "text": text}] if text else []
    return ChatReply(content=content, structured=result.structured, is_error=result.is_error, thread=thread)


class _Telling:
    """The events of a turn in the words of the chat protocol."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def tell(self, body: Body) -> None:
        match body:
            case Delta(message_id, TextDelta(item_id, text)):
                self._tell.piece(message_id, "text", item_id, text)
            case Delta(message_id, ReasoningDelta(item_id, text)):
                self._tell.piece(message_id, "reasoning", item_id, text)
            case Delta(message_id, ArgumentsDelta(item_id, call_id, name, text)):
                self._tell.piece(message_id, "arguments", item_id, text, call_id=call_id, name=name)
            case TurnStarted(message=message):
                self._message(message)
            case MessageAdded(message) if message.role == "assistant":
                self._message(message)
            case ToolStarted(message_id, call):
                self._tell.item(message_id, "assistant", {**item_json(call), "hasMore": True})
            case ToolFinished(message_id, call, output):
                self._tell.item(message_id, "assistant", {**item_json(call), "output": output_json(output)})
            case _:
                pass

    def _message(self, message: Message) -> None:
        for item in message.items:
            self._tell.item(message.id, message.role, item_json(item))
