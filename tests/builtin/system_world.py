"""A `nanobot.system` server over a real home and a real working folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nanobot.builtin.system import system_server
from nanobot.upstream.sandbox import Sandbox, find_sandbox
from nanobot.wire.call import Call
from nanobot.wire.rpc import Payload


@dataclass
class World:
    """`folder` is the working folder, `home` nanobot's, beside it unless chosen otherwise."""

    base: Path
    sandbox: Sandbox | None = field(default_factory=find_sandbox)
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    allow_unconfined: bool = False
    home_name: str = "home"

    def __post_init__(self) -> None:
        self.home = self.base / self.home_name
        self.folder = self.base / "work"
        self.home.mkdir(parents=True)
        self.folder.mkdir(exist_ok=True)
        self.server = system_server(
            home=self.home, sandbox=self.sandbox, env=self.env, allow_unconfined=self.allow_unconfined
        )

    async def result(
        self, tool: str, arguments: Mapping[str, Any], *, thread: str = "t1", folder: Path | None = None
    ) -> dict[str, Any]:
        """The whole tool result."""
        call = Call(thread=thread, folder=folder or self.folder)
        asked = Payload.of({"name": tool, "arguments": dict(arguments)})
        return (await self.server.request("tools/call", asked, call)).value

    async def use(self, tool: str, *, thread: str = "t1", **arguments: Any) -> str:
        """The text of a result that must be a success."""
        result = await self.result(tool, arguments, thread=thread)
        text = result["content"][0].get("text", "")
        assert not result.get("isError"), text
        return text

    async def fail(self, tool: str, *, thread: str = "t1", **arguments: Any) -> str:
        """The message of a result that must be an error."""
        result = await self.result(tool, arguments, thread=thread)
        text = result["content"][0]["text"]
        assert result.get("isError"), text
        return text

    def put(self, path: str, content: str | bytes = "") -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file
