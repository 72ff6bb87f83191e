"""The loop over real HTTP, in each of the dialects, through the whole program."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agent.world import says_done, tool

from nanobot.agent.engine import Input, TurnResult
from nanobot.app import App, open_app
from nanobot.builtin.server import BuiltinServer
from nanobot.config.model import Agent, Config, LlmProvider, McpServer, Publish
from nanobot.config.places import Reference
from nanobot.testing.model_server import ModelServer, Reply, ScriptedCall, model_server

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("dialect", ["OpenAIChatCompletions", "OpenAIResponses", "AnthropicMessages"]),
]


@asynccontextmanager
async def program(home: Path, dialect: Any) -> AsyncGenerator[tuple[App, ModelServer]]:
    async with model_server() as model:
        agent = Agent(
            id="main",
            model="p/m",
            mcp_servers=(Reference("tools"),),
            permissions={"*": "deny"},
            max_tokens=1000,
        )
        config = Config(
            home=home,
            agents={"main": agent},
            mcp_servers={"tools": McpServer(name="tools")},
            llm_providers={"p": LlmProvider(name="p", dialect=dialect, api_key="k", base_url=model.url)},
            publish=Publish(entrypoint=("main",)),
        )
        tools = BuiltinServer("tools", [tool("fs.read", says_done, read_only=True)])
        async with open_app(config, extra_sources={"tools": tools}) as app:
            yield app, model


async def ask(app: App, text: str) -> TurnResult:
    row = await app.engine.open_thread(key="test")
    turn = await app.engine.submit(row.id, Input(text=text))
    with anyio.fail_after(20):
        return await turn.wait()


async def test_tools_errors_and_odd_arguments_go_round_and_the_thread_goes_on(
    tmp_path: Path, dialect: str
) -> None:
    async with program(tmp_path, dialect) as (app, model):
        read = ScriptedCall(name="fs_read", arguments={"path": "a"})
        model.queue(
            Reply(calls=(read, ScriptedCall(name="nothing"), ScriptedCall(name="fs_read", arguments="[1"))),
            Reply(text="All read"),
            Reply(text="Still there"),
        )
        result = await ask(app, "Read")
        assert (result.stop, result.error) == ("completed", "")
        assert result.message is not None
        assert result.message.text == "All read"
        sent = model.requests[-1].body
        assert b"done" in sent
        assert b"There is no tool" in sent
        assert b"arguments must be one JSON object" in sent
        assert (await ask(app, "And?")).text == "Still there"


async def test_after_a_stop_in_the_middle_of_an_answer_the_next_message_works(
    tmp_path: Path, dialect: str
) -> None:
    async with program(tmp_path, dialect) as (app, model):
        model.queue(Reply(text="word " * 1000, pause_ms=5), Reply(text="Going on"))
        row = await app.engine.open_thread(key="test")
        began = anyio.Event()

        def on_event(body: object) -> None:
            if type(body).__name__ == "Delta":
                began.set()

        turn = await app.engine.submit(row.id, Input(text="go"), on_event=on_event)
        with anyio.fail_after(20):
            await began.wait()
            turn.cancel()
            result = await turn.wait()
        assert result.stop == "cancelled"
        assert result.message is not None
        assert result.message.text.startswith("word")
        assert (await ask(app, "And?")).text == "Going on"


async def test_a_refused_request_ends_the_turn_and_not_the_thread(tmp_path: Path, dialect: str) -> None:
    async with program(tmp_path, dialect) as (app, model):
        model.queue(Reply(status=401, error_message="bad key"), Reply(text="Fine"))
        result = await ask(app, "go")
        assert result.stop == "error"
        assert result.error
        assert (await ask(app, "And?")).text == "Fine"
