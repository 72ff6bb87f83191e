"""The hub: many servers seen as one. Lists come from the catalogue, requests go straight to their server."""

from __future__ import annotations

import functools
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import TaskStatus

from nanobot.aio import task_group
from nanobot.config.model import Config
from nanobot.config.places import Reference
from nanobot.errors import NotFound, UpstreamError
from nanobot.hub.catalogue import Catalogue
from nanobot.hub.prompts import INLINE_PROMPTS, InlinePrompts
from nanobot.hub.published import Listing, Missing, Published
from nanobot.hub.relay import Introduced
from nanobot.hub.views import WAIT_S, Shapes, View
from nanobot.watchers import Watchers
from nanobot.wire.call import NOBODY, Audience, Call, Caller
from nanobot.wire.client import Connected
from nanobot.wire.rpc import INVALID_PARAMS, Payload, RpcError
from nanobot.wire.source import Kind, Source
from nanobot.wire.versions import META_PREFIX

log = logging.getLogger(__name__)

ANNOUNCE_SPACING_S: Final = 0.25
"""Changes are announced at most this often."""
LEVEL_S: Final = 5.0
"""How long servers may take to take note of a log level."""
MAX_VIEWS: Final = 256
"""How many sets of references keep their list, for one account; the oldest goes first."""
MAX_ACCOUNTS: Final = 1000
"""For how many accounts lists are kept; for those who were away for longest they are read again."""

Heard = Callable[[str, str, Payload, Audience], None]
"""Takes what a server (its name, a method and params) said on its own for those whom it concerns."""

Announcement = Callable[[Kind, str | None], None]
"""Told that a list may have changed, of one account or (None) of all."""


class Hub:
    """All `sources` by server name, and the inline prompts of `config`.

    Those named in `personal` may show each account something else; what they list is kept account by account.
    """

    def __init__(
        self, config: Config, sources: Mapping[str, Source], *, personal: Collection[str] = ()
    ) -> None:
        self._names = tuple(sources)
        inline = InlinePrompts(config.prompts, config.env)
        self._sources: dict[str, Source] = {**sources, INLINE_PROMPTS: inline}
        self._personal = frozenset(personal)
        self._catalogue = Catalogue(self._sources, self._note, personal=self._personal)
        self._shapes = Shapes(config, self._catalogue, tuple(self._sources))
        self._views = OrderedDict[str, dict[tuple[Kind, tuple[Reference, ...]], View]]()
        self._watchers = Watchers[Kind, str | None]()
        self._listeners = Watchers[str, str, Payload, Audience]()
        self._news: set[tuple[Kind, str | None]] = set()
        self._has_news = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the listings and the announcements until cancelled. Lists need this running."""
        async with task_group() as group:
            with ExitStack() as hearing:
                for name, source in self._sources.items():
                    hearing.callback(source.hear(functools.partial(self._pass_on, name)))
                await group.start(self._catalogue.run)
                task_status.started()
                await self._announce()

    def names(self) -> Sequence[str]:
        """The servers the hub was given."""
        return self._names

    def tool_count(self, server: str, account: str = "") -> int | None:
        """How many tools `account` has of `server`, after filters and overrides; None while not known."""
        known = self._shapes.known(account, server, "tools")
        return None if isinstance(known, Missing) else len(known)

    def is_personal(self, references: Sequence[Reference]) -> bool:
        """Whether accounts may see different things behind `references`."""
        return any(reference.server in self._personal for reference in references)

    def view(self, kind: Kind, references: Sequence[Reference], account: str = "") -> View:
        """The list of one kind over `references` as `account` sees it, for those who ask again and again."""
        if not self.is_personal(references):
            account = ""
        views = self._views.get(account)
        if views is None:
            if len(self._views) >= MAX_ACCOUNTS:
                self._forget(next(iter(self._views)))
            views = self._views[account] = {}
        else:
            self._views.move_to_end(account)
        key = (kind, tuple(references))
        view = views.get(key)
        if view is None:
            if len(views) >= MAX_VIEWS:
                del views[next(iter(views))]
            view = views[key] = View(account, kind, references, self._shapes)
        return view

    def is_there(self, account: str) -> None:
        """Somebody of `account` uses a view that they were given: their lists are kept for longer."""
        if account in self._views:
            self._views.move_to_end(account)

    async def tools(
        self, references: Sequence[Reference], caller: Caller = NOBODY, *, wait_s: float = WAIT_S
    ) -> Listing:
        """The tools the references lead to, under their published names, as `caller`'s account sees them.

        Waits at most `wait_s` seconds, and only for servers that have never been listed; never fails because
        a server does: what is not there is named in `missing`.
        """
        return await self.view("tools", references, caller.account).current(caller, wait_s)

    async def prompts(
        self, references: Sequence[Reference], caller: Caller = NOBODY, *, wait_s: float = WAIT_S
    ) -> Listing:
        """As `tools`, for prompts; a reference may also be the name of an inline prompt."""
        return await self.view("prompts", references, caller.account).current(caller, wait_s)

    async def resources(
        self, references: Sequence[Reference], caller: Caller = NOBODY, *, wait_s: float = WAIT_S
    ) -> Listing:
        """As `tools`, for resources: names are URIs, and the part after `server/` is a prefix of them."""
        return await self.view("resources", references, caller.account).current(caller, wait_s)

    async def templates(
        self, references: Sequence[Reference], caller: Caller = NOBODY, *, wait_s: float = WAIT_S
    ) -> Listing:
        """As `resources`, for resource templates."""
        return await self.view("templates", references, caller.account).current(caller, wait_s)

    async def call(self, tool: Published, arguments: Payload, call: Call) -> Payload:
        """Run a listed tool with `arguments` (an object) and give its result as the server wrote it.

        Raises `RpcError` for an error the server answered, `UpstreamError` when there was no answer.
        """
        params: dict[str, Any] = {"name": tool.own_name, "arguments": msgspec.Raw(object_text(arguments.raw))}
        meta = {key: value for key, value in call.meta.items() if is_forwarded(key)}
        if meta:
            params["_meta"] = meta
        return await self.request(tool.server, "tools/call", Payload(msgspec.json.encode(params)), call)

    async def request(self, server: str, method: str, params: Payload, call: Call) -> Payload:
        """Pass a request on to `server`, which must know the names in it as its own.

        `server` "" means the inline prompts. Raises `NotFound` for an unknown server, otherwise as `call`.
        """
        return await self._source(server or INLINE_PROMPTS).request(method, params, call)

    async def tell_all(self, method: str, params: Payload, call: Call) -> None:
        """Make a request that concerns every server, as a change of the log level does, of all of them.

        None that does not answer keeps the rest from being asked, and none holds the caller up for long.
        """

        async def ask(source: Source) -> None:
            try:
                await source.request(method, params, call)
            except (RpcError, UpstreamError) as e:
                log.debug("not told", extra={"server": source.name, "method": method, "reason": str(e)})

        with anyio.move_on_after(LEVEL_S):
            async with task_group() as group:
                for source in self._sources.values():
                    if isinstance(source, Introduced):
                        group.start_soon(ask, source)

    async def introduction(self, server: str, caller: Caller) -> Connected | None:
        """What `server` tells `caller`'s account about itself, once connected; None for one in this process.

        Raises `UpstreamUnavailable` when it cannot be reached, `NotFound` for an unknown server.
        """
        source = self._source(server)
        return await source.ready(caller) if isinstance(source, Introduced) else None

    def watch(self, changed: Announcement) -> Callable[[], None]:
        """Be told of lists that may have changed, at most four times a second, until the returned function
        is called. Templates are announced as `resources`: MCP has one notification for both."""
        return self._watchers.add(changed)

    def hear(self, told: Heard) -> Callable[[], None]:
        """Be told at once what servers say without being asked, but for changed lists, until the returned
        function is called."""
        return self._listeners.add(told)

    def is_inside(self, server: str) -> bool:
        """Whether `server` is a part of this process and not reached over a connection."""
        return not isinstance(self._source(server or INLINE_PROMPTS), Introduced)

    def _pass_on(self, server: str, method: str, params: Payload, audience: Audience) -> None:
        for told in self._listeners:
            try:
                told(server, method, params, audience)
            except RpcError as e:
                log.debug("malformed notification dropped", extra={"server": server, "reason": e.message})

    def _source(self, server: str) -> Source:
        source = self._sources.get(server)
        if source is None:
            raise NotFound(f"There is no MCP server {server!r}; known: {', '.join(sorted(self._names))}.")
        return source

    def _forget(self, account: str) -> None:
        del self._views[account]
        self._catalogue.forget(account)

    def _note(self, kind: Kind, account: str | None) -> None:
        self._news.add(("resources" if kind == "templates" else kind, account))
        self._has_news.set()

    async def _announce(self) -> None:
        while True:
            await self._has_news.wait()
            news, self._news, self._has_news = self._news, set(), anyio.Event()
            for kind, account in sorted(news, key=lambda one: one[0]):
                for changed in self._watchers:
                    try:
                        changed(kind, account)
                    except Exception:  # one watcher's fault is not the next one's
                        log.exception("announcing a change failed", extra={"kind": kind})
            await anyio.sleep(ANNOUNCE_SPACING_S)


def is_forwarded(meta_key: str) -> bool:
    """Whether a member of `_meta` goes on to the server: not what each connection writes for itself."""
    return meta_key != "progressToken" and not meta_key.startswith(META_PREFIX)


def object_text(raw: bytes) -> bytes:
    """`raw` if it is an object, `{}` if it is null; `RpcError` (-32602) for any other JSON value."""
    if raw[:1] == b"{" or raw.lstrip()[:1] == b"{":
        return raw
    if raw == b"null":
        return b"{}"
    raise RpcError(INVALID_PARAMS, "arguments must be an object")
