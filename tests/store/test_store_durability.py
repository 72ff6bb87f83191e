"""What was acknowledged is there, whatever happens to the process."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nanobot.store import open_store

from .world import message, start, thread

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("acknowledged", [1, 7, 40])
async def test_nothing_acknowledged_is_lost_when_the_process_is_killed(path: Path, acknowledged: int) -> None:
    process = start(
        """
async def main():
    async with open_store(path) as store:
        await store.threads.create(ThreadRow(id="t1"))
        for n in range(10_000):
            await store.threads.append("t1", [StoredMessage(f"{n}-a", b"x"), StoredMessage(f"{n}-b", b"y")])
            print(n, flush=True)
anyio.run(main)
""",
        path,
    )
    assert process.stdout is not None
    with process:
        told = [process.stdout.readline().strip() for _ in range(acknowledged)]
        process.kill()
        told += process.stdout.read().split()
    assert told == [str(n) for n in range(len(told))]

    async with open_store(path) as store:
        ids = [m.id for m in await store.threads.messages("t1")]
    whole = [f"{n}-{half}" for n in range(len(ids) // 2) for half in "ab"]
    assert ids == whole
    assert len(told) <= len(ids) // 2 <= len(told) + 1
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_two_processes_write_to_one_file(path: Path) -> None:
    async with open_store(path) as store:
        await store.threads.create(thread("ours"))
        await store.threads.create(thread("theirs"))
        process = start(
            """
async def main():
    async with open_store(path) as store:
        for n in range(50):
            await store.threads.append("theirs", [StoredMessage(f"m{n}", b"x")])
            await store.threads.messages("ours")
anyio.run(main)
""",
            path,
        )
        with process:
            for n in range(50):
                await store.threads.append("ours", [message(f"m{n}")])
            assert process.communicate()[0] == ""
        assert process.returncode == 0
        for id in ("ours", "theirs"):
            assert [m.id for m in await store.threads.messages(id)] == [f"m{n}" for n in range(50)]


async def test_the_first_two_processes_may_make_the_file_together(path: Path) -> None:
    body = """
async def main():
    async with open_store(path) as store:
        await store.threads.create(ThreadRow(id=sys.argv[2]))
anyio.run(main)
"""
    together = [start(body, path, id) for id in ("a", "b", "c")]
    assert [process.communicate()[0] for process in together] == ["", "", ""]
    async with open_store(path) as store:
        assert {row.id for row in await store.threads.recent()} == {"a", "b", "c"}
