"""What runs here and whether it is well: version, agents, upstream servers, health."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from nanobot.agent.engine import Engine
from nanobot.config.model import Agent, Config
from nanobot.errors import NanobotError
from nanobot.llm.messages import JsonObject
from nanobot.server.exchange import Exchange
from nanobot.upstream.connection import UpstreamState
from nanobot.wire.versions import ALL_VERSIONS

Health = Literal["ok", "starting", "failing"]
_STATUS_CODES: Mapping[Health, int] = {"ok": 200, "starting": 503, "failing": 503}


class StatusApi:
    """Handlers of `/api/version`, `/api/agents`, `/api/servers` and the health path."""

    def __init__(
        self, engine: Engine, config: Config, *, servers: Callable[[], Iterable[UpstreamState]], version: str
    ) -> None:
        self._engine = engine
        self._config = config
        self._servers = servers
        self._version = version

    async def version(self, http: Exchange) -> None:
        """`GET /api/version`."""
        commit = self._config.env.get("NANOBOT_COMMIT", "")
        body = {"version": self._version, "commit": commit, "protocolVersions": ALL_VERSIONS}
        await http.answer_json(body)

    async def agents(self, http: Exchange) -> None:
        """`GET /api/agents`: the agents a chat can use, the default one first."""
        names = self._config.publish.entrypoint
        agents = [self._config.agents[name] for name in names if name in self._config.agents]
        await http.answer_json({"agents": [_agent_json(a, is_default=a is agents[0]) for a in agents]})

    async def servers(self, http: Exchange) -> None:
        """`GET /api/servers`: every MCP server we use, with its state."""
        await http.answer_json({"servers": [_server_json(s) for s in self._servers()]})

    async def health(self, http: Exchange) -> None:
        """`GET /healthz`: 200 or 503 with what was checked; `?live=1` asks for the process alone."""
        if http.query.get("live") in ("1", "true"):
            await http.answer_json({"status": "ok", "checks": {}})
            return
        states = {s.name: s for s in self._servers()}
        database = await self._check_database()
        verdict: Health = "failing" if database != "ok" else self._judge(list(states.values()))
        checks = {
            "database": database,
            "config": "ok",
            "servers": {name: _brief(s) for name, s in states.items()},
        }
        await http.answer_json({"status": verdict, "checks": checks}, status=_STATUS_CODES[verdict])

    async def _check_database(self) -> str:
        try:
            await self._engine.threads(limit=1)
        except NanobotError as e:
            return str(e)
        return "ok"

    def _judge(self, states: Sequence[UpstreamState]) -> Health:
        """Failing when every published server failed and there is no agent to offer instead."""
        publish = self._config.publish
        published = {r.server for r in (*publish.mcp_servers, *publish.tools)}
        asked = [s.state for s in states if s.name in published]
        if publish.entrypoint or not asked or "ready" in asked:
            return "ok"
        return "starting" if {"idle", "starting"} & set(asked) else "failing"


def _agent_json(agent: Agent, *, is_default: bool) -> JsonObject:
    return {
        "id": agent.id,
        "name": agent.display_name,
        "shortName": agent.short_name,
        "description": agent.description,
        "icon": agent.icon,
        "iconDark": agent.icon_dark,
        "starterMessages": agent.starter_messages,
        "default": is_default,
    }


def _server_json(state: UpstreamState) -> JsonObject:
    return {
        "name": state.name,
        "kind": state.kind,
        "state": state.state,
        "era": state.era,
        "protocolVersion": state.protocol_version or None,
        "serverInfo": state.server_info or None,
        "lastError": state.last_error or None,
        "since": datetime.fromtimestamp(state.since, UTC).isoformat() if state.since else None,
        "restarts": state.restarts,
    }


def _brief(state: UpstreamState) -> str:
    return f"{state.state}: {state.last_error}" if state.last_error else state.state
