"""What runs here: version, agents, upstream servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from nanobot.config.model import Agent, Config
from nanobot.llm.messages import JsonObject
from nanobot.server.exchange import Exchange
from nanobot.upstream.state import UpstreamState
from nanobot.wire.versions import ALL_VERSIONS

ServerStates = Callable[[str], Iterable[UpstreamState]]
"""The states that an account may know."""
ToolCount = Callable[[str, str], int | None]
"""How many tools a server has for an account; None while that is not known."""


class StatusApi:
    """Handlers of `/api/version`, `/api/agents` and `/api/servers`."""

    def __init__(
        self,
        config: Config,
        *,
        servers: ServerStates,
        tool_count: ToolCount,
        version: str,
    ) -> None:
        self._config = config
        self._tool_count = tool_count
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
        await http.answer_json(servers_json(http.account, self._servers, self._tool_count))


def servers_json(account: str, servers: ServerStates, tool_count: ToolCount) -> JsonObject:
    """Every MCP server, with its state as `account` may know it."""
    return {"servers": [server_json(state, tool_count(state.name, account)) for state in servers(account)]}


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


def server_json(state: UpstreamState, tools: int | None) -> JsonObject:
    """A server's state as the API and `nanobot targets --status` tell it."""
    return {
        "name": state.name,
        "kind": state.kind,
        "state": state.state,
        "era": state.era,
        "protocolVersion": state.protocol_version or None,
        "serverInfo": state.server_info or None,
        "tools": tools,
        "lastError": state.last_error or None,
        "authUrl": state.auth_url or None,
        "since": datetime.fromtimestamp(state.since, UTC).isoformat() if state.since else None,
        "restarts": state.restarts,
        "connections": state.connections,
    }
