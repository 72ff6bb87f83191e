"""What is kept of tasks, and for how long."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.store import open_store

pytestmark = pytest.mark.anyio


async def test_tasks_of_one_account_give_way_to_their_own_successors_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nanobot.store.mcp_tasks.MOST_KEPT", 3)
    monkeypatch.setattr("nanobot.store.mcp_tasks.MOST_BYTES", 100)
    later = 4e9
    async with open_store(tmp_path / "nanobot.db") as store:
        tasks = store.mcp_tasks
        await tasks.save("theirs", "ann", "p", b"x" * 90, later)
        for number in range(5):
            await tasks.save(f"t{number}", "bob", "p", b"small", later + number)
        assert [await tasks.find(f"t{number}", "bob") is not None for number in range(5)] == [
            False, False, True, True, True,
        ]  # fmt: skip
        await tasks.save("big", "bob", "p", b"x" * 92, later + 9)
        assert await tasks.find("big", "bob") is not None
        assert await tasks.find("t4", "bob") is not None
        assert await tasks.find("t3", "bob") is None
        assert await tasks.find("theirs", "ann") is not None
        assert await tasks.find("theirs", "bob") is None


async def test_a_task_is_gone_after_its_time(tmp_path: Path) -> None:
    async with open_store(tmp_path / "nanobot.db") as store:
        await store.mcp_tasks.save("t", "", "p", b"state", 1.0)
        assert await store.mcp_tasks.find("t", "") is None
