"""What was given out: spent once, gone when it expires or when its owner goes, unreadable at rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.aio import task_group
from nanobot.store import open_store
from nanobot.store.credentials import Credential

pytestmark = pytest.mark.anyio

LATER = 4_000_000_000


async def test_what_was_put_is_found_until_it_expires(tmp_path: Path) -> None:
    async with open_store(tmp_path / "db") as store:
        await store.credentials.put(
            Credential(kind="code", id="a", expires=LATER, owner="g", body=b"CANARY"),
            Credential(kind="code", id="old", expires=1),
        )
        found = await store.credentials.find("code", "a")
        assert found == Credential(kind="code", id="a", expires=LATER, owner="g", body=b"CANARY")
        assert await store.credentials.find("code", "old") is None
        assert await store.credentials.find("token", "a") is None
        await store.credentials.renew("code", "old", expires=LATER)
        await store.credentials.rewrite("code", "a", b"new")
        assert [(await store.credentials.find("code", i)).body for i in ("a", "old")] == [b"new", b""]  # type: ignore[union-attr]
        await store.credentials.renew("code", "old", expires=1)
        await store.credentials.purge()
        await store.credentials.renew("code", "old", expires=LATER)
        assert await store.credentials.find("code", "old") is None
    assert not any(b"CANARY" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


async def test_of_many_at_once_exactly_one_is_the_first_to_spend(tmp_path: Path) -> None:
    async with open_store(tmp_path / "db") as store:
        await store.credentials.put(Credential(kind="code", id="a", expires=LATER))
        firsts: list[bool] = []

        async def spend() -> None:
            spent = await store.credentials.spend("code", "a")
            assert spent is not None
            firsts.append(not spent.used)

        async with task_group() as group:
            for _ in range(20):
                group.start_soon(spend)
        assert sorted(firsts) == [False] * 19 + [True]
        assert await store.credentials.spend("code", "other") is None


async def test_room_is_made_by_unused_ones_the_first_to_expire_first(tmp_path: Path) -> None:
    async with open_store(tmp_path / "db") as store:
        given = store.credentials
        for id, expires in (("a", LATER + 2), ("b", LATER + 1), ("c", LATER), ("old", 1)):
            await given.put(Credential(kind="client", id=id, expires=expires))
        await given.put(Credential(kind="other", id="x", expires=LATER - 1))
        await given.spend("client", "c")
        assert await given.make_room("client", most=4)
        assert all([await given.find("client", id) for id in "abc"])
        assert await given.make_room("client", most=3)
        left = [id for id in "abc" if await given.find("client", id)]
        assert left == ["a", "c"]
        assert not await given.make_room("client", most=1)
        left = [id for id in "abc" if await given.find("client", id)]
        assert left == ["c"]
        assert await given.find("other", "x")


async def test_with_its_owner_everything_goes(tmp_path: Path) -> None:
    async with open_store(tmp_path / "db") as store:
        for id, owner in (("a", "g"), ("b", "g"), ("c", "h")):
            await store.credentials.put(Credential(kind="token", id=id, expires=LATER, owner=owner))
        await store.credentials.remove_owned("g")
        await store.credentials.remove("token", "nothing")
        assert [await store.credentials.find("token", i) is not None for i in "abc"] == [False, False, True]


async def test_with_another_key_nothing_can_be_opened(tmp_path: Path) -> None:
    async with open_store(tmp_path / "db", encryption_key="one") as store:
        await store.credentials.put(Credential(kind="token", id="a", expires=LATER))
    async with open_store(tmp_path / "db", encryption_key="two") as store:
        assert await store.credentials.find("token", "a") is None
    async with open_store(tmp_path / "db", encryption_key="one") as store:
        assert await store.credentials.find("token", "a") is not None
