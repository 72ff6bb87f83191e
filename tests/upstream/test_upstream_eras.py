"""What a server spoke is remembered beyond the program that found it out, for a week, and never believed."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.peers.programs import nanobot
from tests.peers.recording_mcp import recording
from tests.upstream.world import PEERS

from nanobot.store import open_store
from nanobot.store.eras import REMEMBERED_S, Eras


def configured(home: Path, server: dict[str, Any]) -> str:
    (home / "nanobot.yaml").write_text(json.dumps({"mcpServers": {"one": server}}))
    return str(home / "nanobot.yaml")


def call(home: Path, server: dict[str, Any], tool: str = "note", *words: str) -> str:
    """What the tool answers when a program of its own calls it."""
    ran = nanobot("call", "-c", configured(home, server), f"one/{tool}", *words, home=home)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def remembered(home: Path) -> list[str]:
    with closing(sqlite3.connect(home / "nanobot" / "nanobot.db")) as database:
        return [era for (era,) in database.execute("SELECT era FROM eras")]


def questions(methods: Sequence[str]) -> list[str]:
    return [method for method in methods if method in ("initialize", "server/discover")]


def test_a_legacy_server_over_http_is_probed_by_the_first_program_only(tmp_path: Path) -> None:
    with recording() as peer:
        assert call(tmp_path, {"url": peer.url}) == "noted\n"
        assert questions(peer.methods) == ["server/discover", "initialize"]
        assert remembered(tmp_path) == ["legacy"]
        peer.methods.clear()
        assert call(tmp_path, {"url": peer.url}) == "noted\n"
        assert questions(peer.methods) == ["initialize"]
        peer.methods.clear()
        assert call(tmp_path, {"url": peer.url + "?other=1"}) == "noted\n"
        assert questions(peer.methods) == ["server/discover", "initialize"], "another definition"


def test_a_verdict_older_than_a_week_is_none(tmp_path: Path) -> None:
    with recording() as peer:
        call(tmp_path, {"url": peer.url})
        with closing(sqlite3.connect(tmp_path / "nanobot" / "nanobot.db")) as database:
            database.execute("UPDATE eras SET until = until - ?", (REMEMBERED_S + 1,))
            database.commit()
        peer.methods.clear()
        call(tmp_path, {"url": peer.url})
        assert questions(peer.methods) == ["server/discover", "initialize"]
        assert remembered(tmp_path) == ["legacy"]


def test_a_wrong_verdict_costs_one_question_and_is_replaced(tmp_path: Path) -> None:
    oracle = {"command": sys.executable, "args": [str(PEERS / "sdk_server.py"), "stdio"]}
    assert call(tmp_path, oracle, "echo", "--text=a") == "a\n"
    (first,) = remembered(tmp_path)
    with recording() as peer:
        call(tmp_path, {"url": peer.url})
        with closing(sqlite3.connect(tmp_path / "nanobot" / "nanobot.db")) as database:
            database.execute("UPDATE eras SET era = 'modern'")
            database.commit()
        call(tmp_path, {"url": peer.url})
        assert sorted(remembered(tmp_path)) == ["legacy", "modern"]
    assert first == "legacy", "on a pipe initialize comes first"


def test_a_protocol_that_the_definition_names_needs_no_memory(tmp_path: Path) -> None:
    with recording() as peer:
        call(tmp_path, {"url": peer.url, "protocol": "legacy"})
        assert questions(peer.methods) == ["initialize"]
    assert remembered(tmp_path) == []


@pytest.mark.anyio
async def test_verdicts_end_by_the_clock_and_are_cleared_away(tmp_path: Path) -> None:
    now = [1000.0]
    async with open_store(tmp_path / "nanobot.db") as store:
        eras = Eras(store.eras._database, lambda: now[0])  # pyright: ignore[reportPrivateUsage]
        await eras.save("a", "modern")
        await eras.save("a", "legacy")
        assert await eras.find("a") == "legacy"
        assert await eras.find("b") is None
        now[0] += REMEMBERED_S
        assert await eras.find("a") is None
        await eras.save("b", "modern")
    with closing(sqlite3.connect(tmp_path / "nanobot.db")) as database:
        assert database.execute("SELECT definition FROM eras").fetchall() == [("b",)]
