"""The tools of one agent: what the hub lists for it, filtered, and the other agents it may consult."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from nanobot.agent.schemas import accepted_schema
from nanobot.agent.tools import Tool, ToolResult
from nanobot.config.builtin import chat_tool
from nanobot.config.model import Agent
from nanobot.errors import ToolNotFound
from nanobot.hub.apps import SCHEME, app_of
from nanobot.hub.published import Listing, Published
from nanobot.llm.model import ToolSet, ToolSpec
from nanobot.llm.tool_names import wire_names
from nanobot.narrow import object_of
from nanobot.wire.call import Call
from nanobot.wire.rpc import Payload

_LONGEST_DESCRIPTION: Final = 4000
APP: Final = "ai.nanobot.meta/app"
"""Mark of a result whose tool comes with a user interface: its `uri`, the server's own name of the
`tool`, and the `agent` that called it."""

log = logging.getLogger(__name__)

CONSULT_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "What to ask or have done; the agent sees nothing else."},
        "attachments": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "url": {"type": "string"},
                    "name": {"type": "string"},
                    "mimeType": {"type": "string"},
                },
                "required": ["url"],
            },
        },
    },
    "required": ["prompt"],
    "additionalProperties": False,
}


class Calls(Protocol):
    """Runs listed tools; see `Hub.call`."""

    async def call(self, tool: Published, arguments: Payload, call: Call) -> Payload: ...


class Toolbox:
    """The tools of one agent under one listing. Immutable: a changed listing makes another one.

    `named` is by published name, sorted; `wired` the same tools by the name the model uses.
    """

    def __init__(
        self,
        listing: Listing,
        *,
        visible: Callable[[Published], bool],
        colleagues: Sequence[Agent],
        extensions: Mapping[str, Mapping[str, Any]],
        hub: Calls,
    ) -> None:
        self._hub = hub
        self._published = {tool.name: tool for tool in listing.items if visible(tool)}
        self._apps = dict(_apps(self._published.values()))
        tools = {name: _tool(tool) for name, tool in self._published.items()}
        tools |= {tool.name: tool for tool in map(_consult, colleagues)}
        self.named: Mapping[str, Tool] = {name: tools[name] for name in sorted(tools)}
        self.wire_names = wire_names([*self.named])
        self.wired: Mapping[str, Tool] = {self.wire_names[name]: tool for name, tool in self.named.items()}
        self.specs = ToolSet(
            tuple(
                ToolSpec(wire, tool.description, tool.schema, extensions.get(tool.name, {}))
                for wire, tool in self.wired.items()
            )
        )

    async def call_tool(self, name: str, arguments: Mapping[str, Any], call: Call) -> ToolResult:
        """The result of a server's tool by its published name; a failing tool is a result with `is_error`.

        Raises `ToolNotFound`, and `RpcError` and `UpstreamError` when there is no result.
        """
        published = self._published.get(name)
        if published is None:
            raise ToolNotFound(name, [*self.named])
        answer = (await self._hub.call(published, Payload.of(arguments), call)).object()
        return ToolResult(
            content=answer.get("content") or [],
            is_error=bool(answer.get("isError")),
            structured=answer.get("structuredContent"),
            meta=self._meta(name, answer.get("_meta"), call),
        )

    def _meta(self, name: str, given: Mapping[str, Any] | None, call: Call) -> Mapping[str, Any] | None:
        """`_meta` of a result, in which the mark of an app is ours alone."""
        app = self._apps.get(name)
        if app is None and (given is None or APP not in given):
            return given
        kept = {key: value for key, value in object_of(given).items() if key != APP}
        mark = {} if app is None else {APP: {**app, "agent": call.agents[-1] if call.agents else ""}}
        return {**kept, **mark}


def _tool(tool: Published) -> Tool:
    definition = tool.definition.object()
    return Tool(
        name=tool.name,
        description=_cut(str(definition.get("description") or "")),
        schema=accepted_schema(definition.get("inputSchema")),
        target=tool.server,
        read_only=object_of(definition.get("annotations")).get("readOnlyHint") is True,
        listed_as=tool.listed_as,
        own_name=tool.own_name,
    )


def _apps(tools: Iterable[Published]) -> Iterable[tuple[str, Mapping[str, str]]]:
    """The marks of the tools that come with a user interface."""
    for tool in tools:
        uri = app_of(tool.definition)
        if uri.startswith(SCHEME):
            yield tool.name, {"uri": uri, "tool": tool.own_name}
        elif uri:
            fields = {"server": tool.server, "tool": tool.own_name, "uri": uri[:200]}
            log.warning("a tool's user interface is no ui:// resource and is not shown", extra=fields)


def _consult(agent: Agent) -> Tool:
    return Tool(
        name=chat_tool(agent.id),
        description=_cut(agent.description or agent.display_name),
        schema=CONSULT_SCHEMA,
        target=agent.id,
        target_type="agent",
    )


def _cut(description: str) -> str:
    """At most the length models profit from, ending with a sentence where one ends late enough."""
    if len(description) <= _LONGEST_DESCRIPTION:
        return description
    cut = description[: _LONGEST_DESCRIPTION - 1]
    end = max(cut.rfind(mark) for mark in (". ", ".\n", "! ", "? ", "\n"))
    return (cut[: end + 1] if end > 0 else cut) + "…"
