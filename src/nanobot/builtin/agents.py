"""The built-in server `nanobot.agent`: every agent as a tool `chat-with-<agent>`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import msgspec

from nanobot.config.builtin import AGENTS, chat_tool
from nanobot.config.model import Agent, Config
from nanobot.errors import NanobotError
from nanobot.wire.call import NOBODY, Call, Caller, Notify
from nanobot.wire.notifications import PROGRESS
from nanobot.wire.rpc import INVALID_PARAMS, METHOD_NOT_FOUND, Payload, RpcError
from nanobot.wire.source import Changed, Entry, Kind, Told
from nanobot.wire.versions import META_SESSION

COMPLETION: Final = "ai.nanobot.progress/completion"
"""Member of the `_meta` of a progress notification: `{model, agent, messageID, role, item}`."""

PATIENCE_S: Final = 2.0
"""How long a client that can come back for an answer waits for it."""

SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "What to say to the agent."},
        "attachments": {
            "type": "array",
            "description": "Files to send along.",
            "items": {
                "type": "object",
                "properties": {
                    "url": {"type": "string", "description": "A data: URI or file:///<path>."},
                    "name": {"type": "string"},
                    "mimeType": {"type": "string"},
                },
                "required": ["url"],
            },
        },
    },
    "required": ["prompt"],
}

PieceKind = Literal["text", "reasoning", "arguments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """What an agent answered. `thread` is the id to go on with, if the client has to be told one."""

    content: Sequence[Mapping[str, Any]]
    structured: Any = None
    is_error: bool = False
    thread: str = ""


class Tell(Protocol):
    """Receives what an agent says while it says it. Never blocks."""

    def piece(
        self, message_id: str, kind: PieceKind, item_id: str, text: str, *, call_id: str = "", name: str = ""
    ) -> None:
        """More of an item that is being written."""
        ...

    def item(self, message_id: str, role: str, item: Mapping[str, Any]) -> None:
        """An item as it is now; it replaces what was told of it before."""
        ...


class Chat(Protocol):
    """Has agents answer. Cancelling the call does what cancelling its request should do.

    Raises `RpcError` for a request that cannot be meant, any other `NanobotError` for one that failed.
    """

    async def chat(
        self, agent: str, arguments: Mapping[str, Any], *, call: Call, tell: Tell | None
    ) -> ChatReply: ...


class AgentServer:
    """A `Source` over the agents of a configuration. `connect` it before the first call."""

    name = AGENTS

    def __init__(self, config: Config) -> None:
        self._agents = {chat_tool(agent.id): agent for agent in config.agents.values()}
        self._chat: Chat | None = None

    def connect(self, chat: Chat) -> None:
        """Have `chat` answer from now on: the engine, which is made after the servers."""
        self._chat = chat

    async def listing(self, kind: Kind, caller: Caller = NOBODY) -> Sequence[Entry]:
        if kind != "tools":
            return ()
        return [Entry(name, Payload.of(_definition(name, a))) for name, a in sorted(self._agents.items())]

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        if method != "tools/call":
            raise RpcError(METHOD_NOT_FOUND, f"{method}: {AGENTS} has no such method")
        try:
            asked = _call.decode(params.raw)
        except (msgspec.DecodeError, RecursionError) as e:
            raise RpcError(INVALID_PARAMS, f"bad request: {e}") from e
        agent = self._agents.get(asked.name)
        if agent is None:
            raise RpcError(INVALID_PARAMS, f"unknown tool {asked.name}")
        if self._chat is None:
            raise RuntimeError("the agents are not connected")
        if call.deferral is not None:
            call.deferral.after(PATIENCE_S)
        news = None
        if call.wants_progress and call.notify is not None:
            news = _News(call.notify, agent=agent.id, model=agent.model)
        try:
            return _result(await self._chat.chat(agent.id, asked.arguments or {}, call=call, tell=news))
        except RpcError:
            raise
        except NanobotError as e:
            return _result(ChatReply(content=[_text(str(e))], is_error=True))
        finally:
            if news is not None:
                news.close()

    def watch(self, changed: Changed) -> Callable[[], None]:
        return lambda: None  # the configuration is immutable

    def hear(self, told: Told) -> Callable[[], None]:
        return lambda: None


def agent_server(config: Config) -> AgentServer:
    """The server of all agents; which of their tools are offered to whom is up to the references."""
    return AgentServer(config)


@dataclass(slots=True)
class _Pending:
    """Text of one item that was not told yet."""

    message_id: str
    item: dict[str, Any]
    kind: PieceKind
    pieces: list[str] = field(default_factory=list[str])
    size: int = 0


class _News:
    """Progress notifications of one call, numbered 1, 2, 3, …

    The first piece of an item is told at once; later ones together, after 25 ms or 1 KiB, or before anything
    else is told. A client with a screen cannot show more, and a notification costs more than its text.
    """

    SPACING_S: Final = 0.025
    SIZE: Final = 1024

    def __init__(self, notify: Notify, *, agent: str, model: str) -> None:
        self._notify = notify
        self._agent = agent
        self._model = model
        self._count = 0
        self._pending: _Pending | None = None
        self._timer: asyncio.TimerHandle | None = None

    def piece(
        self, message_id: str, kind: PieceKind, item_id: str, text: str, *, call_id: str = "", name: str = ""
    ) -> None:
        pending = self._pending
        if pending is None or pending.item["id"] != item_id or pending.kind != kind:
            self._end_item()
            item = _partial(kind, item_id, call_id, name)
            self._pending = _Pending(message_id, item, kind, [text], len(text))
            self._flush()
            return
        pending.pieces.append(text)
        pending.size += len(text)
        if pending.size >= self.SIZE:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.SPACING_S, self._flush)

    def item(self, message_id: str, role: str, item: Mapping[str, Any]) -> None:
        self._end_item()
        self._send(message_id, role, item)

    def close(self) -> None:
        """Tell nothing more; what was not told is part of the result."""
        self._pending = None
        self._stop_timer()

    def _end_item(self) -> None:
        pending = self._pending
        if pending is not None:
            self._flush()
            self._pending = None
            self._send(pending.message_id, "assistant", {"id": pending.item["id"], "partial": True})

    def _flush(self) -> None:
        self._stop_timer()
        pending = self._pending
        if pending is None or not pending.pieces:
            return
        text = "".join(pending.pieces)
        pending.pieces, pending.size = [], 0
        told = [{"text": text}] if pending.kind == "reasoning" else text
        self._send(pending.message_id, "assistant", {**pending.item, _FIELDS[pending.kind]: told})

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self, message_id: str, role: str, item: Mapping[str, Any]) -> None:
        self._count += 1
        completion = {"model": self._model, "agent": self._agent, "messageID": message_id, "role": role}
        meta = {COMPLETION: {**completion, "item": item}}
        self._notify(PROGRESS, Payload.of({"progress": self._count, "_meta": meta}))


_FIELDS: Final[Mapping[PieceKind, str]] = {"text": "text", "reasoning": "summary", "arguments": "arguments"}


def _partial(kind: PieceKind, item_id: str, call_id: str, name: str) -> dict[str, Any]:
    item: dict[str, Any] = {"id": item_id, "partial": True, "hasMore": True}
    match kind:
        case "text" | "reasoning":
            return item | {"type": kind}
        case "arguments":
            return item | {"type": "tool", "callID": call_id, "name": name}


def _definition(name: str, agent: Agent) -> dict[str, Any]:
    return {"name": name, "description": agent.description or agent.display_name, "inputSchema": SCHEMA}


def _result(reply: ChatReply) -> Payload:
    """An MCP tool result that is never empty."""
    result: dict[str, Any] = {"content": list(reply.content) or [_text("[NO CONTENT]")]}
    if reply.structured is not None:
        result["structuredContent"] = reply.structured
    if reply.is_error:
        result["isError"] = True
    if reply.thread:
        result["_meta"] = {META_SESSION: reply.thread}
    return Payload.of(result)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


class _Call(msgspec.Struct):
    name: str
    arguments: dict[str, Any] | None = None


_call = msgspec.json.Decoder(_Call)
