"""Which hooks a handshake passes, so that no server waits for a tool of one that waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from nanobot.config.model import HookMapping, HookTarget, McpServer
from nanobot.config.view import View

HANDSHAKE: Final = ("initialize", "server/discover", "notifications/initialized")


def handshake_hooks(name: str, servers: Mapping[str, McpServer]) -> tuple[HookMapping, ...]:
    """The hooks of server `name` that its handshake passes.

    Of those under `*`, a tool is left out whose server needs `name` to be connected before it can answer.
    """
    mappings: list[HookMapping] = []
    for mapping in servers[name].hooks:
        if not any(mapping.concerns(method) for method in HANDSHAKE):
            continue
        targets = mapping.targets
        if mapping.event == "*":
            targets = tuple(t for t in targets if not _needs(t, name, servers, with_any=True))
        if targets:
            mappings.append(replace(mapping, targets=targets))
    return tuple(mappings)


def check_hook_circles(servers: Mapping[str, McpServer], section: View) -> None:
    """Report hooks of a handshake whose tool could only answer after it. `section`: `mcpServers`."""
    for name, view in section.each():
        hooks = view.under("hooks")
        for mapping in servers[name].hooks if name in servers else ():
            if mapping.event not in HANDSHAKE:
                continue
            for target in mapping.targets:
                if _needs(target, name, servers, with_any=False):
                    hooks.place.key(mapping.key).error(
                        "bad-hook",
                        hooks.node.entries[mapping.key].key_at,
                        f"{target.text!r} cannot answer before {name!r} is connected.",
                        "take a tool of another server, a script or a web hook",
                    )


def _needs(target: HookTarget, name: str, servers: Mapping[str, McpServer], *, with_any: bool) -> bool:
    """Whether calling `target` needs a connection to server `name`. `with_any`: hooks under `*` count too."""
    seen: set[str] = set()
    ahead = [target.tool.server] if target.tool is not None else []
    while ahead:
        server = ahead.pop()
        if server == name:
            return True
        if server not in seen and server in servers:
            seen.add(server)
            ahead.extend(_called(servers[server], with_any=with_any))
    return False


def _called(server: McpServer, *, with_any: bool) -> Iterator[str]:
    """The servers whose tools are called when a tool of `server` is, its handshake included."""
    for mapping in server.hooks:
        is_asked = mapping.concerns("tools/call") or (
            (with_any or mapping.event != "*") and any(mapping.concerns(method) for method in HANDSHAKE)
        )
        if is_asked:
            yield from (target.tool.server for target in mapping.targets if target.tool is not None)
