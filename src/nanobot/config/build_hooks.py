"""Hooks of the model from a `hooks` section: keys and targets taken apart, and checked where they stand."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qsl, urlsplit

from nanobot.config import builtin
from nanobot.config.diagnostics import Place
from nanobot.config.model import HookMapping, HookTarget
from nanobot.config.places import Origin, Reference
from nanobot.config.references import Known
from nanobot.config.shapes import nearest
from nanobot.config.view import View

Owner = Literal["server", "agent", "session"]

EVENTS: Final[Mapping[Owner, tuple[str, ...]]] = {
    "agent": ("config", "request", "response"),
    "session": ("session",),
}
"""Events of those owners whose events have fixed names; a server's are methods of MCP."""
PARAMS: Final = ("name", "direction", "method", "callOnError")
"""What a key of a server may ask for; other events have no parameters."""
NOT_SEEN: Final = frozenset(
    {
        "subscriptions/listen",
        "notifications/cancelled",
        "notifications/roots/list_changed",
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/subscriptions/acknowledged",
    }
)
"""What we tell a server, and it us, about the connection alone. No hook sees it, so naming it is an error."""
METHODS: Final = frozenset(
    "initialize server/discover ping tools/list tools/call prompts/list prompts/get "
    "resources/list resources/templates/list resources/read resources/subscribe "
    "resources/unsubscribe completion/complete logging/setLevel roots/list "
    "sampling/createMessage elicitation/create tasks/get tasks/update tasks/result "
    "tasks/cancel tasks/list notifications/initialized notifications/progress "
    "notifications/message notifications/resources/updated notifications/elicitation/complete "
    "notifications/tasks notifications/tasks/status".split()
)
"""What MCP and the extensions that we know call messages. Servers may have more."""
SCRIPTS: Final = (".js", ".mjs", ".ts")

_ALREADY_DONE: Final = f"{builtin.SYSTEM}/config"
"""Documents written for other programs may name this; here it is part of every turn."""
_PREFIX = re.compile(r"!(mutate|optional):")
_EXPORT = re.compile(r"[A-Za-z_$][\w$]*")


def build_hooks(
    owner: Owner, view: View, folders: Mapping[str, Path], known: Known
) -> tuple[HookMapping, ...]:
    """The `hooks` of `view`, in the order in which they run: keys by their bytes, targets as written."""
    section = view.under("hooks")
    mappings = [_mapping(owner, key, section, folders, known) for key in section.node.entries]
    return tuple(sorted((m for m in mappings if m.targets), key=lambda m: m.key.encode()))


def _mapping(owner: Owner, key: str, section: View, folders: Mapping[str, Path], known: Known) -> HookMapping:
    event, _, query = key.partition("?")
    params: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        params[name] = f"{params[name]},{value}" if name in params else value
    entry = section.node.entries[key]
    _check_event(owner, event, params, entry.key_at, section.place.key(key))
    targets = (_target(*item, folders, known) for item in section.items(key))
    return HookMapping(
        key=key, event=event, params=params, targets=tuple(t for t in targets if t is not None)
    )


def _check_event(owner: Owner, event: str, params: Mapping[str, str], at: Origin, place: Place) -> None:
    events = EVENTS.get(owner)
    allowed = PARAMS if owner == "server" else ()
    if not event:
        place.error("bad-hook", at, "A hook needs an event before the `?`; `*` means every event.")
    elif events is not None and event not in (*events, "*"):
        place.error("bad-hook", at, f"There is no event {event!r} here; known: {', '.join(events)}, *.")
    elif owner == "server" and event in NOT_SEEN:
        place.error("bad-hook", at, f"Hooks do not run for {event!r}, which belongs to the connection.")
    elif owner == "server" and event != "*" and event not in METHODS:
        near = nearest(event, {method: method for method in METHODS})
        hint = f"did you mean {near!r}?" if near else "an extension may have it"
        place.warning("unknown-method", at, "MCP has no such method, so this may never run.", hint)
    if unknown := sorted(params.keys() - set(allowed)):
        hint = f"known: {', '.join(allowed)}" if allowed else "this event has no parameters"
        place.error("bad-hook", at, f"No event has {', '.join(unknown)}, so this would never run.", hint)
    for name, words in (("direction", ("request", "response")), ("callOnError", ("true", "false"))):
        if name in allowed and name in params and params[name] not in words:
            place.error("bad-hook", at, f"`{name}` is {' or '.join(words)}; anything else never matches.")


def _target(
    text: str, at: Origin, place: Place, folders: Mapping[str, Path], known: Known
) -> HookTarget | None:
    prefixes, bare = _prefixes(text)
    if bare == _ALREADY_DONE:
        return None
    if len(prefixes) != len(set(prefixes)):
        place.error("bad-hook", at, "A prefix of a hook target is written once.")
        return None
    target = HookTarget(text=text, may_mutate="mutate" not in prefixes, is_optional="optional" in prefixes)
    if bare.startswith("./"):
        file, _, export = bare.partition("#")
        path = _file(file, export, at, place, folders)
        return path and replace(target, path=path, export=export)
    if "://" in bare:
        return replace(target, url=bare) if _is_address(bare, at, place) else None
    server, slash, tool = bare.partition("/")
    if not server or not tool or not slash:
        hint = "write server/tool, ./file.ts, ./file.py#function or https://…"
        place.error("bad-hook", at, "This is no hook target.", hint)
        return None
    found = known.server(bare, at, place)
    return found and replace(target, tool=Reference(server, tool))


def _prefixes(text: str) -> tuple[list[str], str]:
    prefixes: list[str] = []
    while match := _PREFIX.match(text):
        prefixes.append(match[1])
        text = text[match.end() :]
    return prefixes, text


def _file(file: str, export: str, at: Origin, place: Place, folders: Mapping[str, Path]) -> Path | None:
    """The file of a target, if there is one in the configuration directory that can be run."""
    folder = folders.get(at.source)
    if folder is None:
        place.error("bad-hook", at, "Only a document in a directory can name a file.")
        return None
    if at.source.endswith(".md"):  # agents/<id>.md: `./` is the directory of the configuration there too
        folder = folder.parent
    root, path = (os.path.realpath(p) for p in (folder, folder / file))
    kinds = (*SCRIPTS, ".py")
    if not path.startswith(root + os.sep):
        place.error("bad-hook", at, f"{file!r} is not in the directory of the configuration.")
    elif not path.endswith(kinds):
        place.error("bad-hook", at, f"{file!r} is no script; known: {', '.join(kinds)}.")
    elif not os.path.isfile(path):
        place.error("bad-hook", at, f"There is no file {file!r} beside the configuration.")
    elif path.endswith(".py") and not export:
        place.error("bad-hook", at, f"{file!r} names no function.", f"write {file}#<function>")
    elif export and not _EXPORT.fullmatch(export):
        place.error("bad-hook", at, "What follows the `#` is the name of a function.")
    else:
        return Path(path)
    return None


def _is_address(url: str, at: Origin, place: Place) -> bool:
    """Whether hooks may be sent there: encrypted, or to this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        host, parts = "", None
    is_local = host in ("localhost", "::1") or bool(re.fullmatch(r"127(\.\d{1,3}){3}", host))
    if parts is not None and host and (parts.scheme == "https" or (parts.scheme == "http" and is_local)):
        return True
    place.error("bad-hook", at, "A web hook has an https:// address; http:// only on this machine.")
    return False
