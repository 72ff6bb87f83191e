"""From a server's own tools to the ones that exist here: allow, then override, then prefix.

The result maps final names to own names, so a call is mapped back by looking it up; a name that the pipeline
did not produce does not exist. Definitions are changed member by member: what we do not know stays as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from nanobot.config.model import McpServer, ToolOverride
from nanobot.hub.apps import is_for_models
from nanobot.hub.published import Published
from nanobot.wire.rpc import Payload, RpcError
from nanobot.wire.source import Entry

log = logging.getLogger(__name__)

_NO_ARGUMENTS: Final = msgspec.Raw(b'{"type":"object","properties":{}}')
_UNCHANGED: Final = ToolOverride()


def shape_tools(server: McpServer, entries: Iterable[Entry]) -> dict[str, Published]:
    """The tools of `server` by final name. Of two with one name the first stays, with a warning."""
    tools: dict[str, Published] = {}
    for entry in entries:
        if server.allow_tools is not None and entry.key not in server.allow_tools:
            continue
        if server.tool_overrides and entry.key not in server.tool_overrides:
            continue
        override = server.tool_overrides.get(entry.key, _UNCHANGED)
        name = server.tool_prefix + (override.name or entry.key)
        if name in tools:
            fields = {"server": server.name, "tool": name, "kept": tools[name].own_name, "dropped": entry.key}
            log.warning("two tools of a server have one name", extra=fields)
            continue
        definition = _reshape(entry, name, override)
        if definition is not None:
            tools[name] = Published(name, server.name, entry.key, definition, is_for_models(definition))
        else:
            log.warning("a tool's definition is no object", extra={"server": server.name, "tool": entry.key})
    return tools


def rename(definition: Payload, name: str) -> Payload:
    """The same definition under another name."""
    return _with(definition.members(), {"name": _raw(name)})


def _reshape(entry: Entry, name: str, override: ToolOverride) -> Payload | None:
    """The definition under its final name, or None if it is no object. Untouched if nothing is to change."""
    try:
        members = entry.definition.members()
    except RpcError:
        return None
    changes: dict[str, msgspec.Raw] = {}
    if name != entry.key:
        changes["name"] = _raw(name)
    if override.description is not None:
        changes["description"] = _raw(override.description)
    if override.input_schema is not None:
        changes["inputSchema"] = _raw(override.input_schema)
    elif (schema := _repaired(members.get("inputSchema"))) is not None:
        changes["inputSchema"] = schema
    return _with(members, changes) if changes else entry.definition


def _repaired(schema: msgspec.Raw | None) -> msgspec.Raw | None:
    """A schema to use instead, or None if `schema` will do. Only what no client could read is repaired."""
    if schema is None:
        return _NO_ARGUMENTS
    try:
        members = Payload.encoded(schema).members()
    except RpcError:
        return _NO_ARGUMENTS
    if not members:
        return _NO_ARGUMENTS
    if bytes(members.get("type", b"")) == b'"object"' and "properties" not in members:
        return msgspec.Raw(_with(members, {"properties": msgspec.Raw(b"{}")}).raw)
    return None


def _with(members: Mapping[str, msgspec.Raw], changes: Mapping[str, msgspec.Raw]) -> Payload:
    return Payload(msgspec.json.encode({**members, **changes}))


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
