"""`todoWrite`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .system_world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, sandbox=None)


def task(content: str = "Run the tests", status: str = "pending", active: str = "Running the tests"):
    return {"content": content, "status": status, "activeForm": active}


async def test_the_list_is_replaced_and_kept_by_conversation(world: World) -> None:
    first = [task(), task("Write", "in_progress", "Writing")]
    told = await world.use("todoWrite", todos=first)
    assert told == "Todo list updated:\n\n" + json.dumps(first, indent=2)
    await world.use("todoWrite", todos=[task(status="completed")])
    await world.use("todoWrite", thread="t2", todos=[])
    kept = [json.loads((world.home / f"files/{t}/.nanobot/todo.json").read_text()) for t in ("t1", "t2")]
    assert kept == [[task(status="completed")], []]


@pytest.mark.parametrize(
    ("todos", "complaint"),
    [
        (
            [task(status="in_progress"), task(status="in_progress")],
            "only one task can be in_progress at a time",
        ),
        ([task(), task(content=" ")], "task 2: content is required"),
        ([task(active="")], "task 1: activeForm is required"),
        ([task(status="started")], "todos[0].status"),
        ([{"content": "x", "status": "pending"}], "activeForm"),
    ],
)
async def test_a_list_that_means_nothing_is_refused(world: World, todos: object, complaint: str) -> None:
    await world.use("todoWrite", todos=[task()])
    assert complaint in await world.fail("todoWrite", todos=todos)
    assert json.loads((world.home / "files/t1/.nanobot/todo.json").read_text()) == [task()]


async def test_a_link_in_its_place_is_not_followed_outside(world: World) -> None:
    own = world.home / "files/t1"
    own.mkdir(parents=True)
    (own / ".nanobot").symlink_to(world.base)
    assert "outside" in await world.fail("todoWrite", todos=[task()])
    assert not (world.base / "todo.json").exists()
