"""Several processes on one home: none harms the conversations of another."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio.to_thread
import pytest
from tests.agent.world import world
from tests.peers.programs import clean_env

from nanobot.agent.engine import Input
from nanobot.errors import Busy
from nanobot.llm.messages import decode_message
from nanobot.llm.scripted import says
from nanobot.store import open_store
from nanobot.testing.model_server import Reply, model_server

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
INTERRUPTED = "assistant: Error: Task interrupted before a response was generated."


@contextmanager
def elsewhere(home: Path, where: str) -> Generator[subprocess.Popen[str]]:
    """`crashing.py` in a process of its own, killed with the block."""
    argv = [sys.executable, "-m", "tests.agent.crashing", str(home), where]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def wait_until_there(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    assert child.stdout.readline() == "here\n"


def turn_elsewhere(home: Path) -> None:
    """A whole turn (`go`, `theirs`) in another process."""
    with elsewhere(home, "done") as child:
        assert child.wait(30) == 0


def chat(config: Path, message: str) -> subprocess.Popen[str]:
    """`nanobot chat` with one message in the conversation `k`."""
    return subprocess.Popen(
        [sys.executable, "-m", "nanobot", "chat", "-s", "k", "-m", message, "-c", str(config)],
        env=clean_env(config.parent), stdin=subprocess.DEVNULL, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


async def test_a_turn_of_another_process_is_left_alone_until_its_process_is_dead(tmp_path: Path) -> None:
    async with world(tmp_path, [says("now I can")]) as w:
        with elsewhere(tmp_path, "model") as child:
            await anyio.to_thread.run_sync(wait_until_there, child)
            for _ in range(2):
                with pytest.raises(Busy, match=f"process {child.pid}"):
                    await w.submit("me too")
                assert await w.history() == ["user: go"]
            child.kill()
            child.wait()
        assert await w.history() == ["user: go", INTERRUPTED]
        assert (await w.ask("me too")).message.text == "now I can"
        assert [m.text for m in w.model.requests[0].messages][-1] == "me too"


async def test_a_turn_of_another_process_in_a_thread_that_is_in_memory_is_noticed(tmp_path: Path) -> None:
    async with world(tmp_path, [says("one"), says("two")]) as w:
        await w.ask("first")
        with elsewhere(tmp_path, "model") as child:
            await anyio.to_thread.run_sync(wait_until_there, child)
            with pytest.raises(Busy):
                await w.submit("second")
            child.kill()
            child.wait()
        assert (await w.ask("third")).message.text == "two"
        expected = ["user: first", "assistant: one", "user: go", INTERRUPTED, "user: third", "assistant: two"]
        assert await w.history() == expected
    async with world(tmp_path) as again:
        assert await again.history() == expected


async def test_what_another_process_has_added_is_seen_and_continued(tmp_path: Path) -> None:
    async with world(tmp_path, [says("one"), says("two"), says("three")]) as w:
        await w.ask("first")
        await anyio.to_thread.run_sync(turn_elsewhere, tmp_path)
        assert (await w.ask("second")).message.text == "two"
        sent = [m.text for m in w.model.requests[-1].messages]
        assert sent == ["first", "one", "go", "theirs", "second"]
        await anyio.to_thread.run_sync(turn_elsewhere, tmp_path)
        assert (await w.history())[-2:] == ["user: go", "assistant: theirs"]
        await w.ask("third")
        assert [m.text for m in w.model.requests[-1].messages][-4:] == ["two", "go", "theirs", "third"]


async def test_a_title_given_by_another_process_stays(tmp_path: Path) -> None:
    async with world(tmp_path, [says("yes")]) as w:
        assert await w.history() == []
        await anyio.to_thread.run_sync(turn_elsewhere, tmp_path)
        await w.ask("Is it you?")
        assert [row.title for row in await w.engine.threads()] == ["go"]


async def test_inputs_that_wait_here_keep_others_out(tmp_path: Path) -> None:
    with elsewhere(tmp_path, "queue") as child:
        await anyio.to_thread.run_sync(wait_until_there, child)
        async with world(tmp_path) as w:
            with pytest.raises(Busy):
                await w.submit("third")
            assert await w.history() == ["user: first", "user: second"]


async def test_four_at_once_on_a_new_conversation_are_answered_or_told_that_it_is_busy(
    tmp_path: Path,
) -> None:
    async with model_server() as model:
        provider = {"dialect": "OpenAIChatCompletions", "apiKey": "x", "baseURL": model.url}
        config = tmp_path / "nanobot.yaml"
        config.write_text(json.dumps({"agents": {"a": {"model": "p/m"}}, "llmProviders": {"p": provider}}))
        for _ in range(4):
            model.queue(Reply(text="Yes."))
        chats = [chat(config, f"number {n}") for n in range(4)]
        outputs = [await anyio.to_thread.run_sync(one.communicate) for one in chats]
    answered = [n for n, one in enumerate(chats) if one.returncode == 0]
    assert answered
    for n, (out, err) in enumerate(outputs):
        if n in answered:
            assert "Yes." in out
        else:
            assert "is answering in this conversation; try again when it has answered." in err

    async with open_store(tmp_path / "nanobot" / "nanobot.db") as store:
        [row] = await store.threads.recent()
        assert await store.threads.unfinished(row.id) == ([], [])
        messages = [decode_message(m.raw) for m in await store.threads.messages(row.id)]
    assert [m.role for m in messages] == ["user", "assistant"] * len(answered)
    assert {m.text for m in messages[::2]} == {f"number {n}" for n in answered}
    assert {m.text for m in messages[1::2]} == {"Yes."}


async def test_two_processes_that_find_the_same_dead_turn_close_it_once(tmp_path: Path) -> None:
    with elsewhere(tmp_path, "queue") as child:
        await anyio.to_thread.run_sync(wait_until_there, child)
        child.kill()
        child.wait()
    found: list[list[str]] = []

    async with world(tmp_path) as one, world(tmp_path) as two, anyio.create_task_group() as both:

        async def look(w: object) -> None:
            found.append(await w.history())  # type: ignore[attr-defined]

        both.start_soon(look, one)
        both.start_soon(look, two)
    assert found == [["user: first", INTERRUPTED, "user: second", INTERRUPTED]] * 2


async def test_nothing_of_a_refused_input_is_stored(tmp_path: Path) -> None:
    with elsewhere(tmp_path, "model") as child:
        await anyio.to_thread.run_sync(wait_until_there, child)
        async with world(tmp_path) as w:
            thread = await w.thread()
            before = await w.store.threads.record(thread)
            with pytest.raises(Busy):
                await w.engine.submit(thread, Input(text="x"))
            assert await w.store.threads.record(thread) == before
