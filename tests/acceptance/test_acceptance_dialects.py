"""One conversation over three dialects leaves one and the same thread."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nanobot.agent.engine import Input
from nanobot.app import open_app
from nanobot.builtin.server import BuiltinServer, BuiltinTool, ToolFailed
from nanobot.config.load import Selection, load_config
from nanobot.testing.model_server import Reply, ScriptedCall, model_server
from nanobot.wire.call import Call

pytestmark = pytest.mark.anyio

DIALECTS = ("OpenAIChatCompletions", "OpenAIResponses", "AnthropicMessages")


async def divide(arguments: dict[str, Any], call: Call) -> str:
    if arguments["b"] == 0:
        raise ToolFailed("division by zero")
    return str(arguments["a"] / arguments["b"])


def calculator() -> BuiltinServer:
    number = {"type": "number"}
    schema = {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}
    tool = BuiltinTool(name="divide", description="Divide.", schema=schema, run=divide)
    return BuiltinServer("calculator", [tool])


async def conversation(dialect: str, home: Path) -> list[Any]:
    """Text, two parallel calls of which one fails, the final answer, a second turn; as it is stored."""
    async with model_server() as model:
        model.queue(
            Reply(text="I divide.", calls=(
                ScriptedCall("divide", {"a": 8, "b": 2}), ScriptedCall("divide", {"a": 1, "b": 0}),
            )),
            Reply(text="4, and the other has no answer."),
            Reply(text="You are welcome."),
        )  # fmt: skip
        document = home / "nanobot.yaml"
        document.write_text(json.dumps({
            "llmProviders": {"p": {"dialect": dialect, "apiKey": "x", "baseURL": model.url}},
            "mcpServers": {"calculator": {"url": "http://127.0.0.1:9"}},
            "agents": {"a": {"model": "p/m", "mcpServers": "calculator", "permissions": {"*": "deny"}}},
        }))  # fmt: skip
        selection = Selection(sources=[str(document)], env={"PATH": "/usr/bin:/bin"}, cwd=home, home=home)
        config = load_config(selection)
        async with open_app(config, extra_sources={"calculator": calculator()}) as app:
            thread = await app.engine.open_thread()
            for text in ("8/2 and 1/0?", "Thanks."):
                turn = await app.engine.submit(thread.id, Input(text=text))
                assert (await turn.wait()).stop == "completed"
            return [json.loads(m.raw) for m in await app.store.threads.messages(thread.id)]


def without_ids(stored: list[Any]) -> list[Any]:
    """Ids replaced by the order of their first appearance, times and private parts left out."""
    numbers: dict[str, str] = {}

    def plain(value: Any, key: str = "") -> Any:
        match value:
            case dict():
                kept = {k: v for k, v in value.items() if k not in ("created", "providerData", "_meta")}
                return {k: plain(v, k) for k, v in kept.items()}
            case list():
                return [plain(v) for v in value]
            case str() if key in ("id", "callID"):
                return numbers.setdefault(value, f"#{len(numbers)}")
            case _:
                return value

    return plain(stored)


async def test_the_stored_thread_is_the_same_for_every_dialect(tmp_path: Path) -> None:
    threads: dict[str, list[Any]] = {}
    for dialect in DIALECTS:
        home = tmp_path / dialect
        home.mkdir()
        threads[dialect] = without_ids(await conversation(dialect, home))
    first = threads[DIALECTS[0]]
    kinds = [[item["type"] for item in message["items"]] for message in first]
    assert kinds == [["text"], ["text", "tool", "tool"], ["tool"], ["tool"], ["text"], ["text"], ["text"]]
    outputs = [message["items"][0]["output"] for message in first[2:4]]
    assert outputs[0]["content"][0]["text"] == "4.0"
    assert "division by zero" in outputs[1]["content"][0]["text"]
    assert outputs[1]["isError"] is True
    for dialect in DIALECTS[1:]:
        assert threads[dialect] == first, dialect
