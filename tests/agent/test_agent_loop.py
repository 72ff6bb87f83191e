"""The loop, scenario by scenario: what a person sees, and what the model is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from nanobot.builtin.server import ToolFailed
from nanobot.config.model import Agent
from nanobot.llm.messages import ToolOutput
from nanobot.llm.scripted import ScriptedCall, Step, all_call, calls, cut_off, fails, says
from tests.agent.world import says_done, text_of, tool, world

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
