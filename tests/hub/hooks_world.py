"""The world of the hook tests: a hub over servers with hooks, as a configuration file says them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hub.world import Server, refs

from nanobot.aio import task_group
from nanobot.builtin.server import BuiltinServer, BuiltinTool
from nanobot.config.load import Selection, load_config
from nanobot.config.model import Config
from nanobot.http import open_http
from nanobot.hub.hooks.hooks import Hooks, Timeouts
from nanobot.hub.hooks.record import HookRecord
from nanobot.hub.hub import Hub
from nanobot.wire.call import Call, Caller
from nanobot.wire.rpc import Payload
from nanobot.wire.source import Source


def load(home: Path, document: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Config:
    """`document` as the `nanobot.yaml` of `home`, which may already hold the files of hooks."""
    (home / "nanobot.yaml").write_text(json.dumps(document))
    return load_config(Selection(sources=[str(home)], env=env or {}, cwd=home, home=home))


@dataclass
class World:
    hub: Hub
    hooks: Hooks
    records: list[HookRecord] = field(default_factory=list)

    async def ask(self, server: str, method: str, params: Any, call: Call | None = None) -> Any:
        call = call or Call(caller=Caller(session="s-1", account="ada", client={"name": "probe"}))
        answer = await self.hub.request(server, method, Payload.of(params), call)
        return json.loads(answer.raw)

    async def call(
        self, tool: str, arguments: Any = None, call: Call | None = None, server: str = "pay"
    ) -> Any:
        params = {"name": tool, "arguments": arguments or {}}
        return await self.ask(server, "tools/call", params, call)

    @property
    def statuses(self) -> list[tuple[str, str]]:
        return [(s.target, s.status) for record in self.records for s in record.statuses]


@asynccontextmanager
async def world(
    home: Path,
    hooks: Mapping[str, Any],
    *sources: Source,
    settings: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    of: Mapping[str, Mapping[str, Any]] | None = None,
    servers: Mapping[str, Mapping[str, Any]] | None = None,
    timeouts: Timeouts = Timeouts(),  # noqa: B008
) -> AsyncGenerator[World]:
    """The server `pay` with `hooks` (others have those in `of`). Servers that are not given echo.

    `servers`: further keys of them, by name.
    """
    given = {source.name: source for source in sources}
    names = {"pay", *given, *(of or {})}
    written: dict[str, Any] = {
        name: {"command": "none", "hooks": (of or {}).get(name, {}), **(servers or {}).get(name, {})}
        for name in sorted(names)
    }
    written["pay"]["hooks"] = dict(hooks)
    config = load(home, {"mcpServers": written, "hookSettings": dict(settings or {})}, env)
    records: list[HookRecord] = []
    async with open_http() as http, task_group() as group:
        made = Hooks(config, http, audit=records.append, timeouts=timeouts)
        hub = Hub(config, made.around({name: given.get(name) or Server(name) for name in written}))
        made.connect(hub)
        await group.start(hub.run)
        await group.start(made.run)
        yield World(hub, made, records)
        group.cancel_scope.cancel()


class Guard:
    """A server whose tools are hooks: `answers` says what each gives; `seen` what each was given."""

    def __init__(self, name: str = "guard", **answers: Any) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.source = BuiltinServer(name, [self._tool(tool, answer) for tool, answer in answers.items()])

    def _tool(self, name: str, answer: Any) -> BuiltinTool:
        async def run(arguments: dict[str, Any], call: Call) -> Any:
            self.seen.append((name, arguments))
            return answer(arguments) if callable(answer) else answer

        of_messages = ("accept", "mutated", "message", "reason", "context")
        of_sessions = ("url", "sessionId", "account", "client", "_meta")
        properties = {key: {} for key in (*of_messages, *of_sessions)}
        return BuiltinTool(name=name, description=name, schema={"properties": properties}, run=run)


__all__ = ["Guard", "Server", "World", "load", "refs", "world"]
