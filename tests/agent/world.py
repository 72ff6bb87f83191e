"""The world of the agent tests: a running engine over a real store and a real hub, its models scripted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from nanobot.agent.chat import AgentChats
from nanobot.agent.engine import Engine, Input, Turn, TurnResult
from nanobot.agent.events import Body, Event, TurnEnded
from nanobot.aio import task_group
from nanobot.builtin.agents import agent_server
from nanobot.builtin.server import BuiltinServer, BuiltinTool
from nanobot.config.model import Agent, Config, McpServer, Publish
from nanobot.config.places import Reference
from nanobot.hub.hub import Hub
from nanobot.llm.messages import ToolOutput
from nanobot.llm.router import Chosen
from nanobot.llm.scripted import ScriptedModel, Step
from nanobot.store import Store, open_store
from nanobot.wire.source import Source

ANYTHING = {"type": "object", "properties": {}}


def tool(
    name: str,
    run: Callable[[dict[str, Any]], Awaitable[Any]],
    *,
    schema: Mapping[str, Any] = ANYTHING,
    read_only: bool = False,
) -> BuiltinTool:
    """A tool of the server `tools`."""

    async def called(arguments: dict[str, Any], call: object) -> Any:
        return await run(arguments)

    annotations = {"readOnlyHint": True} if read_only else {}
    return BuiltinTool(name=name, description=name, schema=schema, run=called, annotations=annotations)


async def says_done(arguments: dict[str, Any]) -> str:
    return "done"


@dataclass
class World:
    engine: Engine
    models: Mapping[str, ScriptedModel]
    store: Store
    home: Path
    chats: Source
    events: list[Body] = field(default_factory=list)

    @property
    def model(self) -> ScriptedModel:
        return self.models["main"]

    async def thread(self) -> str:
        return (await self.engine.open_thread(key="test")).id

    async def submit(self, text: str, **rest: Any) -> Turn:
        return await self.engine.submit(
            await self.thread(), Input(text=text), on_event=self.events.append, **rest
        )

    async def ask(self, text: str = "Hello", **rest: Any) -> TurnResult:
        turn = await self.submit(text, **rest)
        with anyio.fail_after(20):
            return await turn.wait()

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    def outputs(self, request: int = -1) -> list[ToolOutput]:
        """The tool results the model was sent with a request."""
        messages = self.model.requests[request].messages
        return [item for message in messages for item in message.items if isinstance(item, ToolOutput)]

    async def history(self) -> list[str]:
        """The thread as a reader sees it, one line a message."""
        async with self.engine.attach(await self.thread()) as attachment:
            return [f"{m.role}: {m.text or said(m.items)}" for m in attachment.history]


def said(items: Sequence[Any]) -> str:
    return " ".join(text_of(i) if isinstance(i, ToolOutput) else f"({type(i).__name__})" for i in items)


def text_of(output: ToolOutput) -> str:
    return "".join(block.get("text", "") for block in output.content)


@dataclass(frozen=True)
class Choice:
    models: Mapping[str, Any]

    def choose(self, agent: Agent) -> Chosen:
        return Chosen(model=self.models[agent.id], name="m", provider="scripted", scope="scripted")


@asynccontextmanager
async def world(
    home: Path,
    steps: Sequence[Step] | Mapping[str, Sequence[Step]] = (),
    *tools: BuiltinTool,
    agents: Sequence[Agent] = (),
    sources: Mapping[str, Source] | None = None,
    all_used: bool = True,
    max_turns: int | None = None,
    model: Any = None,
    agents_of_main: tuple[str, ...] = (),
    **main: Any,
) -> AsyncGenerator[World]:
    """Agent `main` (fields in `main`) with the given tools, and other `agents`, answering from `steps`."""
    scripts = steps if isinstance(steps, Mapping) else {"main": steps}
    main = {"mcp_servers": (Reference("tools"),), "agents": agents_of_main} | main
    everyone = {"main": Agent(id="main", **main)} | {agent.id: agent for agent in agents}
    models = {id: model or ScriptedModel(scripts.get(id, ())) for id in everyone}
    all_sources = {"tools": BuiltinServer("tools", tools), **(sources or {})}
    config = Config(
        home=home,
        agents=everyone,
        mcp_servers={name: McpServer(name=name) for name in all_sources},
        publish=Publish(entrypoint=("main",)),
        env={"CITY": "Bern"},
    )
    chats = agent_server(config)
    hub = Hub(config, {**all_sources, chats.name: chats})
    async with open_store(home / "nanobot.db") as store, task_group() as owner:
        engine = Engine(config, threads=store.threads, models=Choice(models), hub=hub, max_turns=max_turns)
        chats.connect(AgentChats(engine, config.agents))
        await owner.start(hub.run)
        await owner.start(engine.run)
        yield World(engine, models, store, home, chats)
        owner.cancel_scope.cancel()
    if all_used and model is None:
        for script in models.values():
            script.check_used()


async def until_ended(attachment: Any) -> list[Event]:
    """The events of one turn."""
    seen: list[Event] = []
    with anyio.fail_after(20):
        async for event in attachment:
            seen.append(event)
            if isinstance(event.body, TurnEnded):
                return seen
    raise AssertionError("the events ended before the turn")
