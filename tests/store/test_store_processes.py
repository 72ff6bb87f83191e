"""Several processes on one home: who lives, and that one at a time has turns in a thread."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nanobot.errors import Busy
from nanobot.store import Store, open_store
from nanobot.store.processes import Processes, pid_of

from .world import message, start, thread, turn

pytestmark = pytest.mark.anyio

OTHER = """
from nanobot.store.rows import TurnRow
async def main():
    async with open_store(path) as store:
        row = TurnRow(id="theirs", thread_id="t1", agent="main", started="")
        await store.threads.accept("t1", StoredMessage("from them", b"x"), row)
        print(store.threads.processes.own, flush=True)
        sys.stdin.read()
        await store.threads.append("t1", [StoredMessage("end", b"x")], turn=TurnRow(
            id="theirs", thread_id="t1", agent="main", started="", stop="completed"))
anyio.run(main)
"""


@contextmanager
def answering(path: Path) -> Generator[tuple[subprocess.Popen[str], str]]:
    """A process with an unfinished turn in `t1`, and its id. It finishes when its input ends."""
    with start(OTHER, path, stdin=subprocess.PIPE) as other:
        assert other.stdout is not None
        try:
            yield other, other.stdout.readline().strip()
        finally:
            other.kill()


async def test_a_thread_in_which_another_process_has_a_turn_takes_no_input(path: Path, store: Store) -> None:
    await store.threads.create(thread())
    with answering(path) as (other, id):
        assert store.threads.processes.is_alive(id)
        with pytest.raises(Busy, match=rf"process {other.pid}\) is answering .* try again"):
            await store.threads.accept("t1", message("ours"), turn("ours"))
        [unfinished], _ = await store.threads.unfinished("t1")
        assert (unfinished.id, unfinished.owner) == ("theirs", id)
        assert [m.id for m in await store.threads.messages("t1")] == ["from them"]

        other.communicate("")
        assert not store.threads.processes.is_alive(id)
        assert await store.threads.accept("t1", message("ours"), turn("ours")) == "end"
        assert await store.threads.accept("t1", message("more"), turn("more")) == "ours"


async def test_the_turn_of_a_killed_process_is_in_nobodys_way(path: Path, store: Store) -> None:
    await store.threads.create(thread())
    with answering(path) as (other, id):
        other.kill()
        other.wait()
        assert await store.threads.accept("t1", message("ours"), turn("ours")) == "from them"
        assert not store.threads.processes.is_alive(id)


async def test_a_turn_keeps_the_owner_it_began_with(store: Store) -> None:
    await store.threads.create(thread())
    await store.threads.accept("t1", message("m"), turn())
    await store.threads.append("t1", [], turn=turn())
    [unfinished], _ = await store.threads.unfinished("t1")
    assert unfinished.owner == store.threads.processes.own


async def test_something_may_be_added_only_if_nobody_was_faster(store: Store) -> None:
    await store.threads.create(thread())
    assert await store.threads.append_after("", "t1", [message("m1")])
    assert not await store.threads.append_after("", "t1", [message("m2")], turn=turn())
    assert await store.threads.append_after("m1", "t1", [message("m3")])
    record = await store.threads.record("t1")
    assert ([m.id for m in record.messages], record.turns, record.last) == (["m1", "m3"], [], "m3")


async def test_what_a_killed_process_left_is_removed_at_the_next_start(path: Path) -> None:
    async with open_store(path) as store:
        await store.threads.create(thread())
        with answering(path) as (other, id):
            assert (path.parent / "processes" / id).exists()
            other.kill()
            other.wait()
        own = store.threads.processes.own
        async with open_store(path) as again:
            second = again.threads.processes.own
            assert {file.name for file in (path.parent / "processes").iterdir()} == {own, second}
            assert store.threads.processes.is_alive(second)
        assert not store.threads.processes.is_alive(second)


def test_nobody_is_taken_for_dead_by_many_who_look_at_once(tmp_path: Path) -> None:
    first = Processes.join(tmp_path)
    others = [Processes.join(tmp_path) for _ in range(5)]
    assert pid_of(first.own) == str(os.getpid())
    for one in (first, *others):
        assert all(one.is_alive(other.own) for other in (first, *others))
        assert not one.is_alive("")
    for one in (first, *others):
        one.leave()
    assert list(tmp_path.iterdir()) == []
