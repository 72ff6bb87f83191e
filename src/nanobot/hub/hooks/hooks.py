"""All hooks of one configuration: every target opened once, and put where its owner's events pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskStatus

from nanobot.aio import task_group
from nanobot.config.expand import expand
from nanobot.config.hook_circles import handshake_hooks
from nanobot.config.model import Config, HookMapping, HookTarget, McpServer
from nanobot.http import Http
from nanobot.hub.hooks.events import EventHooks
from nanobot.hub.hooks.greeting import Greetings
from nanobot.hub.hooks.handshake import HookedHandshake
from nanobot.hub.hooks.hook import Hook
from nanobot.hub.hooks.matching import Matching
from nanobot.hub.hooks.messages import MessageHooks
from nanobot.hub.hooks.python import PythonFile, PythonHook
from nanobot.hub.hooks.record import Audit, log_record
from nanobot.hub.hooks.script import ScriptFile, ScriptHook
from nanobot.hub.hooks.source import Hooked
from nanobot.hub.hooks.tool import ToolHook
from nanobot.hub.hooks.webhook import WebHook
from nanobot.wire.source import Source

if TYPE_CHECKING:
    from nanobot.hub.hub import Hub
    from nanobot.hub.publish import Greeting


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long a hook may take, in seconds. A tool has the time its server's calls have."""

    script_s: float = 5.0
    webhook_s: float = 10.0


class Hooks:
    """Tools can be called once `connect` was told the hub, which is made after this.

    Raises `ConfigError` where `hookSettings.secret` refers to a variable that is not set.
    """

    def __init__(
        self,
        config: Config,
        http: Http,
        *,
        audit: Audit = log_record,
        timeouts: Timeouts = Timeouts(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` counts seconds; what is remembered of clients ages by it."""
        self._config = config
        self._http = http
        self._audit = audit
        self._timeouts = timeouts
        self._clock = clock
        self._hub: Hub | None = None
        self._hooked: list[Hooked] = []
        self._python: dict[Path, PythonFile] = {}
        self._scripts: dict[Path, ScriptFile] = {}

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the threads of scripts, and what servers say on their own, until cancelled."""
        try:
            async with task_group() as group:
                for hooked in self._hooked:
                    group.start_soon(hooked.run)
                task_status.started()
                await anyio.sleep_forever()
        finally:
            for script in self._scripts.values():
                script.close()

    def connect(self, hub: Hub) -> None:
        self._hub = hub

    def around(self, sources: Mapping[str, Source]) -> dict[str, Source]:
        """`sources`, those with hooks behind them; the others are the same objects."""
        return {name: self._around(name, source) for name, source in sources.items()}

    def checkpoint(self, server: McpServer, account: str) -> HookedHandshake | None:
        """What connections of `account` to a configured server pass; None where no hook looks."""
        passing = handshake_hooks(server.name, {**self._config.mcp_servers, server.name: server})
        if not passing and not any(mapping.concerns("ping") for mapping in server.hooks):
            return None
        return HookedHandshake(
            self._messages(server.name, passing), self._messages(server.name, server.hooks), account
        )

    def agents(self) -> dict[str, EventHooks]:
        """The hooks of agents, by id; agents without any are not in it."""
        return {
            agent.id: EventHooks(self._matching(f"agent:{agent.id}", agent.hooks), self._audit)
            for agent in self._config.agents.values()
            if agent.hooks
        }

    def greeting(self) -> Greeting | None:
        """What is to be done when a client begins to use us, None if nothing is."""
        mappings = self._config.hooks
        if not mappings:
            return None
        hooks = EventHooks(self._matching("", mappings), self._audit)
        return Greetings(hooks, idle_s=self._config.sessions.idle_timeout_s, clock=self._clock).greet

    def _around(self, name: str, source: Source) -> Source:
        server = self._config.mcp_servers.get(name)
        if server is None or not server.hooks:
            return source
        hooked = Hooked(source, self._messages(name, server.hooks))
        self._hooked.append(hooked)
        return hooked

    def _messages(self, server: str, mappings: Sequence[HookMapping]) -> MessageHooks:
        return MessageHooks(server, self._matching(server, mappings), self._audit)

    def _matching(self, owner: str, mappings: Sequence[HookMapping]) -> Matching:
        return Matching(owner, mappings, self._open)

    def _open(self, target: HookTarget) -> Hook:
        """Nothing is read or started before the hook runs for the first time."""
        if target.tool is not None:
            server = self._config.mcp_servers.get(target.tool.server) or McpServer(name=target.tool.server)
            return ToolHook(server, target.tool.tool or "", self._connected)
        if target.url:
            secret = expand(self._config.hook_settings.secret, self._config.env)
            return WebHook(target.url, self._http, secret=secret, timeout_s=self._timeouts.webhook_s)
        path = target.path
        assert path is not None
        timeout_s = self._timeouts.script_s
        if path.suffix == ".py":
            python = self._python.setdefault(path, PythonFile(path))
            return PythonHook(python, target.export, timeout_s=timeout_s)
        script = self._scripts.setdefault(path, ScriptFile(path, path.parent, self._script_env))
        return ScriptHook(script, target.export, timeout_s=timeout_s)

    def _connected(self) -> Hub:
        assert self._hub is not None
        return self._hub

    def _script_env(self) -> Mapping[str, str]:
        configured = self._config.hook_settings.env
        return {name: expand(value, self._config.env) for name, value in configured.items()}
