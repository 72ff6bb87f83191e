"""Audit entries arrive: once, in order, whatever happens to their endpoint, and to us."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from tests.peers.collector import Collector, Received, collecting
from tests.peers.programs import free_port

from nanobot.aio import task_group
from nanobot.http import open_http
from nanobot.hub.audit.sender import HttpSender, SenderSettings

pytestmark = pytest.mark.anyio


def entry(number: int, **more: Any) -> bytes:
    return json.dumps({"n": number, **more}).encode()


def numbers(collector: Collector) -> list[int]:
    return [one["n"] for one in collector.entries]


@asynccontextmanager
async def sending(url: str, folder: Path, **settings: Any) -> AsyncGenerator[HttpSender]:
    """A sender at work; after the block it has ended."""
    quick = {"flush_s": 0.01, "backoff_s": (0.01, 0.02), **settings}
    async with open_http() as http, task_group() as group:
        sender = HttpSender(SenderSettings(url=url, **quick), http, folder)
        await group.start(sender.run)
        yield sender
        group.cancel_scope.cancel()


async def arrived(collector: Collector, count: int) -> None:
    await to_thread.run_sync(collector.wait, lambda: len(collector.entries) >= count)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that happens in a thread or on disk, where nothing announces it."""
    with anyio.fail_after(20):
        while not holds():  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def test_batches_are_json_with_the_token_and_never_too_long(tmp_path: Path) -> None:
    with collecting() as collector:
        async with sending(f"{collector.url}/log", tmp_path, token="t0k", batch_size=10) as sender:
            for number in range(25):
                sender.put(entry(number))
            await arrived(collector, 25)
    assert numbers(collector) == list(range(25))
    assert [len(r.json) for r in collector.received][:2] == [10, 10]
    first = collector.received[0]
    assert first.path == "/log"
    assert first.headers["content-type"] == "application/json"
    assert first.headers["authorization"] == "Bearer t0k"
    assert len({r.headers["x-nanobot-batch-id"] for r in collector.received}) == len(collector.received)


async def test_what_waits_at_the_end_is_sent_then(tmp_path: Path) -> None:
    with collecting() as collector:
        async with sending(collector.url, tmp_path, flush_s=3600) as sender:
            sender.put(entry(1))
            sender.put(entry(2))
        sender.put(entry(3))  # nobody collects any more
    assert numbers(collector) == [1, 2]
    assert list(tmp_path.iterdir()) == []


async def test_an_endpoint_that_was_away_gets_everything_in_order_and_once(tmp_path: Path) -> None:
    port = free_port()
    async with sending(f"http://127.0.0.1:{port}", tmp_path, batch_size=7) as sender:
        for number in range(100):
            sender.put(entry(number))
            await anyio.lowlevel.checkpoint()
        await until(lambda: (tmp_path / "spool.jsonl").exists())
        with collecting(port=port) as collector:
            for number in range(100, 150):
                sender.put(entry(number))
            await arrived(collector, 150)
    assert numbers(collector) == list(range(150))


async def test_a_run_that_ends_while_the_endpoint_is_away_leaves_its_entries_to_the_next(
    tmp_path: Path,
) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    for start in (0, 10):  # two runs in vain
        async with sending(away, tmp_path, batch_size=4) as sender:
            for number in range(start, start + 10):
                sender.put(entry(number))
    with collecting() as collector:
        async with sending(collector.url, tmp_path, batch_size=4) as sender:
            sender.put(entry(20))
            await arrived(collector, 21)
    assert numbers(collector) == list(range(21))
    assert list(tmp_path.iterdir()) == []


async def test_one_entry_that_is_refused_does_not_stop_the_others(tmp_path: Path) -> None:
    def picky(request: Received) -> int:
        return 400 if any(one.get("bad") for one in request.json) else 200

    with collecting(picky) as collector:
        async with sending(collector.url, tmp_path) as sender:
            for number in range(20):
                sender.put(entry(number, bad=number == 13))
            await arrived(collector, 19)
    assert numbers(collector) == [n for n in range(20) if n != 13]
    refused = (tmp_path / "rejected.jsonl").read_text().splitlines()
    assert [json.loads(line)["n"] for line in refused] == [13]


@pytest.mark.parametrize("status", [401, 404, 429, 500, 302])
async def test_other_refusals_are_waited_out_and_lose_nothing(status: int, tmp_path: Path) -> None:
    left = [status] * 3
    with collecting(lambda request: left.pop() if left else 202) as collector:
        async with sending(collector.url, tmp_path) as sender:
            for number in range(5):
                sender.put(entry(number))
            await arrived(collector, 5)
    assert numbers(collector) == list(range(5))
    assert not (tmp_path / "rejected.jsonl").exists()
    ids = [r.headers["x-nanobot-batch-id"] for r in collector.received[:4]]
    assert len(set(ids)) == 1, "a batch that is sent again keeps its id"


async def test_memory_is_bounded_and_disk_takes_the_rest(tmp_path: Path) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    async with sending(away, tmp_path, max_entries=10, batch_size=2) as sender:
        for number in range(40):
            sender.put(entry(number))
            if number % 4 == 3:  # more at once than memory holds would be lost
                await until(lambda: sender.backlog <= 4)
        assert sender.dropped == 0
        assert sender.backlog_bytes > 0
    with collecting() as collector:
        async with sending(collector.url, tmp_path) as sender:
            await arrived(collector, 40)
    assert numbers(collector) == list(range(40))


async def test_what_finds_no_room_is_counted(tmp_path: Path) -> None:
    with collecting() as collector:
        async with sending(collector.url, tmp_path, max_entries=10, flush_s=3600) as sender:
            for number in range(25):  # nothing else runs meanwhile
                sender.put(entry(number))
            assert sender.dropped == 15
    assert numbers(collector) == list(range(10))


async def test_a_line_cut_off_by_a_crash_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "spool.jsonl").write_bytes(b'{"n": 1}\n{"n": 2}\n{"n": 3, "cut')
    with collecting() as collector:
        async with sending(collector.url, tmp_path) as sender:
            sender.put(entry(4))
            await arrived(collector, 3)
    assert numbers(collector) == [1, 2, 4]
