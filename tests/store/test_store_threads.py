"""What the repository of threads promises to those who use it."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import anyio
import pytest

from nanobot.errors import Duplicate, NotFound
from nanobot.store import Store, open_store
from nanobot.store.rows import LedgerEntry, StoredMessage

from .world import call, message, thread, turn

pytestmark = pytest.mark.anyio


async def test_a_thread_is_found_by_its_id_and_by_its_key(store: Store) -> None:
    await store.threads.create(thread(key="cli:direct", agent="main", title="Hi", folder="/work"))
    by_id = await store.threads.find("t1")
    assert by_id == await store.threads.find("cli:direct")
    assert by_id is not None
    assert (by_id.agent, by_id.title, by_id.folder, by_id.kind) == ("main", "Hi", "/work", "chat")
    assert by_id.created == by_id.updated != ""


async def test_an_id_comes_before_a_key_of_the_same_name(store: Store) -> None:
    await store.threads.create(thread("a", key="b"))
    await store.threads.create(thread("b"))
    found = await store.threads.find("b")
    assert found is not None
    assert found.id == "b"


async def test_another_account_sees_nothing(store: Store) -> None:
    await store.threads.create(thread(key="k", account="alice"))
    assert await store.threads.find("t1", account="bob") is None
    assert await store.threads.find("k") is None
    assert await store.threads.recent(account="bob") == []
    await store.threads.create(thread("t2", key="k", account="bob"))


async def test_an_id_or_key_that_is_taken_is_refused(store: Store) -> None:
    await store.threads.create(thread(key="k"))
    with pytest.raises(Duplicate):
        await store.threads.create(thread())
    with pytest.raises(Duplicate):
        await store.threads.create(thread("t2", key="k"))
    await store.threads.create(thread("t2"))
    await store.threads.create(thread("t3"))  # no key is no key that could be taken


async def test_recent_threads_come_in_the_order_of_their_last_message(path: Path) -> None:
    ticks = count()
    async with open_store(path, clock=lambda: f"2025-01-01T00:00:{next(ticks):02}Z") as store:
        for id in ("a", "b", "c"):
            await store.threads.create(thread(id))
        await store.threads.append("a", [message("m")])
        assert [row.id for row in await store.threads.recent()] == ["a", "c", "b"]
        assert [row.id for row in await store.threads.recent(limit=1)] == ["a"]


async def test_messages_come_back_as_they_were_in_the_order_they_were_added(store: Store) -> None:
    await store.threads.create(thread())
    await store.threads.create(thread("other"))
    sent = [StoredMessage(f"m{n}", bytes([n]) * n) for n in range(5)]
    await store.threads.append("t1", sent[:2])
    await store.threads.append("other", [message("m0")])
    await store.threads.append("t1", sent[2:])
    assert await store.threads.messages("t1") == sent
    assert await store.threads.messages("nowhere") == []


async def test_an_append_is_whole_or_not_at_all(store: Store) -> None:
    await store.threads.create(thread())
    await store.threads.append("t1", [message("m1")])
    with pytest.raises(Duplicate):
        await store.threads.append("t1", [message("m2"), message("m1")], calls=[call("c1")], turn=turn())
    assert [m.id for m in await store.threads.messages("t1")] == ["m1"]
    assert await store.threads.unfinished("t1") == ([], [])


async def test_what_does_not_exist_is_named(store: Store) -> None:
    for attempt in (
        store.threads.append("gone", [message("m")]),
        store.threads.accept("gone", message("m"), turn(thread="gone")),
        store.threads.rename("gone", "x"),
        store.threads.delete("gone"),
    ):
        with pytest.raises(NotFound, match="'gone'"):
            await attempt


async def test_turns_and_calls_without_an_end_are_unfinished(store: Store) -> None:
    await store.threads.create(thread())
    waiting = replace(call("c2"), state="waiting")
    await store.threads.append("t1", [message("m1")], turn=turn())
    await store.threads.append("t1", [], calls=[call("c1"), waiting, call("c3", "done")])
    assert await store.threads.unfinished("t1") == ([turn()], [call("c1"), waiting])

    await store.threads.append("t1", [], calls=[call("c1", "done"), replace(waiting, state="done")])
    await store.threads.append("t1", [message("m2")], turn=turn(stop="end"))
    assert await store.threads.unfinished("t1") == ([], [])


async def test_the_end_of_a_call_keeps_its_start(store: Store) -> None:
    await store.threads.create(thread())
    await store.threads.append("t1", [], calls=[call("c1", started="2025-01-01T00:00:00Z")])
    await store.threads.append("t1", [], calls=[call("c1", "waiting")])
    _, open_calls = await store.threads.unfinished("t1")
    assert open_calls == [
        LedgerEntry(
            thread_id="t1",
            turn_id="u1",
            call_id="c1",
            name="bash",
            state="waiting",
            started="2025-01-01T00:00:00Z",
        )
    ]


async def test_deleting_a_thread_takes_everything_of_it_and_nothing_else(store: Store) -> None:
    for id in ("t1", "t2"):
        await store.threads.create(thread(id))
        await store.threads.append(
            id, [message("m")], calls=[call("c", thread=id)], turn=turn(f"u-{id}", thread=id)
        )
    await store.threads.delete("t1")
    assert await store.threads.find("t1") is None
    assert await store.threads.messages("t1") == []
    assert await store.threads.unfinished("t1") == ([], [])
    assert len(await store.threads.messages("t2")) == 1


async def test_a_renamed_thread_keeps_its_title(store: Store) -> None:
    await store.threads.create(thread())
    await store.threads.rename("t1", "Trip to Rome")
    found = await store.threads.find("t1")
    assert found is not None
    assert found.title == "Trip to Rome"


async def test_many_writers_at_once_lose_nothing_and_a_bad_one_fails_alone(store: Store) -> None:
    failed: list[int] = []

    async def write(writer: int) -> None:
        await store.threads.create(thread(f"t{writer}"))
        for n in range(20):
            await store.threads.append(f"t{writer}", [message(f"m{n}", str(writer))])
            if writer % 4 == 0:
                with pytest.raises(Duplicate):
                    await store.threads.append(f"t{writer}", [message("extra"), message(f"m{n}")])
                failed.append(writer)

    async with anyio.create_task_group() as writers:
        for writer in range(16):
            writers.start_soon(write, writer)
    assert len(failed) == 80
    for writer in range(16):
        stored = await store.threads.messages(f"t{writer}")
        assert stored == [message(f"m{n}", str(writer)) for n in range(20)]


async def test_a_cancelled_append_is_written_as_a_whole(store: Store) -> None:
    await store.threads.create(thread())
    with anyio.CancelScope() as scope:
        scope.cancel()
        await store.threads.append("t1", [message("m1"), message("m2")])
    assert scope.cancelled_caught
    await store.threads.append("t1", [message("m3")])  # comes after it: writes keep their order
    assert [m.id for m in await store.threads.messages("t1")] == ["m1", "m2", "m3"]
