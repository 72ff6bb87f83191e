"""A program that runs one turn and then waits to be killed: `python crashing.py <home> tool|model|queue`.

It prints one line when it is where the test wants it: in the middle of a tool call, or of an answer. With
`done` it ends by itself after a whole turn.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
from tests.agent.world import tool, world

from nanobot.llm.scripted import all_call, calls, says, slow


async def main(home: Path, where: str) -> None:
    async def stop_here(*_: object) -> str:
        print("here", flush=True)
        return await anyio.sleep_forever()

    async def count(arguments: dict[str, Any]) -> str:
        with (home / "count").open("a") as file:
            file.write("x")
        return "counted"

    async def hang(arguments: dict[str, Any]) -> str:
        await count(arguments)
        return await stop_here()

    tools = [tool("count", count), tool("hang", hang)]
    scripts = {
        "tool": [calls("count"), all_call(("hang", {}), ("count", {}))],
        "model": [slow(says("never"), stop_here)],
        "done": [says("theirs")],
        "queue": [slow(says("never"), anyio.sleep_forever)],
    }
    async with world(home, scripts[where], *tools) as w:
        if where == "queue":
            await w.submit("first")
            await w.submit("second")
            await stop_here()
        await w.ask("go")


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2])
