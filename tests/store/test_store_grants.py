"""Logins on record: sealed, one for an account and a server, and written by one process at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.store import open_store
from nanobot.store.leases import Leases
from nanobot.store.rows import GrantRow
from nanobot.store.sealing import KEY_VARIABLE, PREVIOUS_VARIABLE

pytestmark = pytest.mark.anyio

GRANT = GrantRow("https://as", "https://mcp", "", "https://mcp/a", b'{"token": "canary-token"}')


async def test_a_grant_is_found_after_a_restart_and_not_readable_in_any_file(tmp_path: Path) -> None:
    async with open_store(tmp_path / "nanobot.db") as store:
        await store.grants.save(GRANT)
        for file in tmp_path.glob("*.*"):  # also while the log is open
            assert b"canary" not in file.read_bytes()
    async with open_store(tmp_path / "nanobot.db") as store:
        found = await store.grants.find(server="https://mcp/a")
        assert found == GRANT
        assert "canary" not in repr(found)
        assert await store.grants.find(server="https://mcp/a", account="other") is None
        assert await store.grants.delete(server="https://mcp/a")
        assert not await store.grants.delete(server="https://mcp/a")


async def test_a_grant_of_another_issuer_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    async with open_store(tmp_path / "nanobot.db") as store:
        await store.grants.save(GRANT)
        new = GrantRow("https://new", "https://mcp", "", "https://mcp/a", b"new")
        sibling = GrantRow("https://new", "https://mcp", "", "https://mcp/b", b"b")
        await store.grants.save(sibling)
        await store.grants.save(new)
        assert await store.grants.all() == [new, sibling]


async def test_keys_are_replaced_and_a_lost_one_makes_a_grant_absent_but_does_not_delete_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "nanobot.db"
    async with open_store(path, env={KEY_VARIABLE: "one"}) as store:
        await store.grants.save(GRANT)
    async with open_store(path, env={KEY_VARIABLE: "two"}) as store:
        assert await store.grants.find(server="https://mcp/a") is None
        assert "not usable" in caplog.text
    async with open_store(path, env={KEY_VARIABLE: "two", PREVIOUS_VARIABLE: "one"}) as store:
        assert await store.grants.find(server="https://mcp/a") == GRANT


async def test_a_lease_has_one_holder_until_it_is_given_back_or_its_time_is_over(tmp_path: Path) -> None:
    now = [1000.0]
    async with open_store(tmp_path / "nanobot.db") as store:
        leases = Leases(store.leases._database, lambda: now[0])
        assert await leases.take("work", "a", for_s=30)
        assert not await leases.take("work", "b", for_s=30)
        assert await leases.take("other", "b", for_s=30)
        await leases.give_back("work", "b")  # has no effect: it is not b's
        assert not await leases.take("work", "b", for_s=30)
        await leases.give_back("work", "a")
        assert await leases.take("work", "b", for_s=30)
        now[0] += 30
        assert await leases.take("work", "a", for_s=30)
