"""Sessions of MCP clients on record: revisions, accounts, and how long they are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.store import Store, open_store
from nanobot.store import mcp_sessions as repository
from nanobot.store.mcp_sessions import McpSessionRow

pytestmark = pytest.mark.anyio


async def test_a_session_is_found_by_its_account_alone(store: Store) -> None:
    sessions = store.mcp_sessions
    assert await sessions.save([("a", "ann", 0, b"{}")]) == [True]
    assert await sessions.find("a", "ann") == McpSessionRow("a", "ann", 1, b"{}")
    assert await sessions.find("a", "bob") is None
    assert not await sessions.delete("a", "bob")
    assert await sessions.delete("a", "ann")
    assert not await sessions.delete("a", "ann")


async def test_who_saves_an_older_revision_is_told_and_nothing_is_overwritten(store: Store) -> None:
    sessions = store.mcp_sessions
    await sessions.save([("a", "", 0, b"1"), ("b", "", 0, b"1")])
    assert await sessions.save([("a", "", 1, b"2"), ("b", "", 0, b"2"), ("c", "", 1, b"2")]) == [
        True,
        False,
        False,
    ]
    assert await sessions.save([("a", "", 1, b"3")]) == [False]
    assert await sessions.find("a", "") == McpSessionRow("a", "", 2, b"2")
    assert await sessions.missing(["a", "b", "c"]) == {"c"}


async def test_rows_that_nobody_uses_are_forgotten(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    sessions = store.mcp_sessions
    monkeypatch.setattr(sessions, "_clock", lambda: now)
    monkeypatch.setattr(repository, "MOST_KEPT", 2)
    for number in range(4):
        now = number * 3600.0
        await sessions.save([(str(number), "", 0, b"{}")])
    await sessions.prune()
    assert await sessions.missing(["0", "1", "2", "3"]) == {"0", "1"}
    now = 2 * 3600.0 + repository.KEPT_S + 1
    await sessions.prune()
    assert await sessions.missing(["2", "3"]) == {"2"}


async def test_a_home_has_company_while_another_process_has_it_open(store: Store, path: Path) -> None:
    assert not store.mcp_sessions.is_shared()
    async with open_store(path):
        assert store.mcp_sessions.is_shared()
    assert not store.mcp_sessions.is_shared()


async def test_derived_keys_are_the_same_in_every_process_and_differ_by_purpose(
    store: Store, path: Path
) -> None:
    async with open_store(path) as other:
        assert store.sealer().derive("a") == other.sealer().derive("a") != store.sealer().derive("b")
