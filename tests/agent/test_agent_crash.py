"""What is left of a turn when the process is killed in the middle of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.agent.world import says_done, text_of, tool, world

from nanobot.llm.scripted import says

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


def kill_during(home: Path, where: str) -> None:
    """Run `crashing.py` until it is where we want it, then `kill -9`."""
    argv = [sys.executable, "-m", "tests.agent.crashing", str(home), where]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "here\n"
        child.kill()


async def test_r37_a_finished_call_never_runs_again_and_an_unfinished_one_is_called_unknown(
    tmp_path: Path,
) -> None:
    kill_during(tmp_path, "tool")
    async with world(tmp_path, [says("I see")], tool("count", says_done), tool("hang", says_done)) as w:
        assert (await w.ask("What happened?")).message.text == "I see"
        finished, unknown, unstarted = (text_of(o) for o in w.outputs())
        assert finished == "counted"
        assert "unknown" in unknown
        assert "not repeated" in unknown
        assert unstarted == "Error: Task interrupted before this tool finished."
        assert (tmp_path / "count").read_text() == "xx"
        request = w.model.requests[0]
        assert [m.role for m in request.messages] == [
            *("user", "assistant", "user", "assistant", "user", "user"),
            *("assistant", "user"),
        ]
        assert request.messages[-2].text == "Error: Task interrupted before a response was generated."
    async with world(tmp_path, [says("Still here")]) as again:
        assert (await again.ask("Once more")).message.text == "Still here"
        assert [text_of(o) for o in again.outputs()] == [finished, unknown, unstarted]


async def test_an_interrupted_answer_leaves_the_question_and_a_sentence(tmp_path: Path) -> None:
    kill_during(tmp_path, "model")
    async with world(tmp_path, [says("Again, then")]) as w:
        assert await w.history() == [
            "user: go",
            "assistant: Error: Task interrupted before a response was generated.",
        ]
        assert (await w.ask("go on")).message.text == "Again, then"


async def test_an_input_that_waited_is_not_lost_and_stands_where_it_was_meant(tmp_path: Path) -> None:
    kill_during(tmp_path, "queue")
    interrupted = "assistant: Error: Task interrupted before a response was generated."
    async with world(tmp_path) as w:
        assert await w.history() == ["user: first", interrupted, "user: second", interrupted]
