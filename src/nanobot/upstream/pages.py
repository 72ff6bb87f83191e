"""Reading a list of a server to its last page, whatever the server does."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from nanobot.wire.parameter_headers import MARK, fault
from nanobot.wire.rpc import INTERNAL_ERROR, METHOD_NOT_FOUND, Payload, RpcError
from nanobot.wire.source import Entry, Kind

log = logging.getLogger(__name__)

MAX_PAGES: Final = 1000
MAX_BYTES: Final = 64 * 1024 * 1024
"""All pages of one list together."""

Ask = Callable[[str, Payload], Awaitable[Payload]]


class _Page(msgspec.Struct, rename={"cursor": "nextCursor", "templates": "resourceTemplates"}):
    tools: list[msgspec.Raw] = []
    prompts: list[msgspec.Raw] = []
    resources: list[msgspec.Raw] = []
    templates: list[msgspec.Raw] = []
    cursor: str | None = None


class _Named(msgspec.Struct, rename={"template": "uriTemplate"}):
    name: str = ""
    uri: str = ""
    template: str = ""


_METHODS: Final[Mapping[Kind, str]] = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "templates": "resources/templates/list",
}
_decode_page = msgspec.json.Decoder(_Page).decode
_decode_named = msgspec.json.Decoder(_Named).decode


async def read_pages(server: str, kind: Kind, capabilities: Mapping[str, Any], ask: Ask) -> Sequence[Entry]:
    """Everything of `kind` that the server lists; nothing where it announces no such capability.

    Ends early, with a warning, at a cursor that was there before, after `MAX_PAGES` and after `MAX_BYTES`.
    Raises what `ask` raises, and `RpcError` (-32603) for an answer that is no list.
    """
    if ("resources" if kind == "templates" else kind) not in capabilities:
        return []
    entries: list[Entry] = []
    seen: set[str] = set()
    cursor: str | None = None
    size = 0
    for _ in range(MAX_PAGES):
        page = await _page(_METHODS[kind], cursor, ask)
        if page is None:
            return entries
        for definition in getattr(page, kind):
            entry = _entry(server, kind, definition)
            if entry is not None:
                entries.append(entry)
                size += len(entry.definition.raw)
        cursor = page.cursor
        if not cursor:
            return entries
        if cursor in seen or size > MAX_BYTES:
            break
        seen.add(cursor)
    log.warning("list cut short", extra={"server": server, "list": kind, "entries": len(entries)})
    return entries


def without_broken_marks(server: str, tools: Sequence[Entry]) -> Sequence[Entry]:
    """The tools that can be called over HTTP: those whose arguments can be put into headers as they say."""
    usable: list[Entry] = []
    for tool in tools:
        if MARK.encode() in tool.definition.raw and (
            broken := fault(tool.definition.object().get("inputSchema"))
        ):
            log.warning("tool left out", extra={"server": server, "tool": tool.key, "reason": broken})
        else:
            usable.append(tool)
    return usable


async def _page(method: str, cursor: str | None, ask: Ask) -> _Page | None:
    """One page; None from a server that has no such list after all."""
    try:
        result = await ask(method, Payload.of({} if cursor is None else {"cursor": cursor}))
    except RpcError as e:
        if e.rpc_code == METHOD_NOT_FOUND:
            return None
        raise
    try:
        return _decode_page(result.raw)
    except msgspec.DecodeError as e:
        raise RpcError(INTERNAL_ERROR, f"the answer to {method} is no list: {e}") from e


def _entry(server: str, kind: Kind, definition: msgspec.Raw) -> Entry | None:
    try:
        named = _decode_named(definition)
    except msgspec.DecodeError:
        named = _Named()
    key = {"resources": named.uri, "templates": named.template}.get(kind, named.name)
    if not key:
        log.warning("entry without a name skipped", extra={"server": server, "list": kind})
        return None
    return Entry(key, Payload.encoded(definition))
