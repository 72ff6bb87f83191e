"""What one account is offered: the published lists as it sees them, and who owns a thing in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nanobot.config.places import Reference
from nanobot.errors import LoginRequired
from nanobot.hub.hub import Hub
from nanobot.hub.pages import Pages
from nanobot.hub.published import Listing, Offer, Published
from nanobot.hub.uri_template import UriTemplate
from nanobot.hub.views import View
from nanobot.wire.call import Caller
from nanobot.wire.extensions import shows_apps
from nanobot.wire.parameter_headers import MARK, Places, places_in
from nanobot.wire.rpc import Payload
from nanobot.wire.source import Kind

MEMBERS: Final[Mapping[Kind, str]] = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "templates": "resourceTemplates",
}
"""The member of a list result that holds the list."""


class OfferedList:
    """One published list: the view it comes from and its encoded pages."""

    def __init__(self, view: View, kind: Kind, key: bytes) -> None:
        self.view = view
        self.pages = Pages(MEMBERS[kind], key)
        self._without_app_tools = Pages(MEMBERS[kind], key)

    def page(self, listing: Listing, cursor: str | None, caller: Caller) -> Payload:
        """One page of `listing` as `caller` may see it. Raises `RpcError` for a cursor that is not ours."""
        if listing.for_models is not listing and not shows_apps(caller):
            self._without_app_tools.show(listing.for_models)
            return self._without_app_tools.page(cursor)
        self.pages.show(listing)
        return self.pages.page(cursor)

    async def find(self, name: str, caller: Caller) -> Published | None:
        """The thing of that name. An unknown name is looked up once more in lists that are due."""
        return self.view.known().by_name.get(name) or (await self.news(caller)).by_name.get(name)

    async def news(self, caller: Caller) -> Listing:
        return await self.view.current(caller, for_news=True)


class Offers:
    """The four lists. Callers given to its methods are of the one account."""

    def __init__(
        self, hub: Hub, references: Mapping[Kind, tuple[Reference, ...]], account: str, key: bytes
    ) -> None:
        """`key` signs the cursors of pages."""
        self.lists: Mapping[Kind, OfferedList] = {
            kind: OfferedList(hub.view(kind, references[kind], account), kind, key) for kind in MEMBERS
        }
        self._matchers: tuple[Listing | None, list[tuple[UriTemplate, Published]]] = (None, [])
        self._marked: tuple[Listing | None, Mapping[str, Places]] = (None, {})

    def warm(self, caller: Caller) -> None:
        """Have the lists prepared in the background; servers that were not needed yet are started."""
        for offered in self.lists.values():
            offered.view.warm(caller)

    def summary(self) -> Offer:
        """What is there now, without waiting."""
        listings = [offered.view.known() for offered in self.lists.values()]
        missing = [one for listing in listings for one in listing.missing]
        return Offer(
            things=sum(len(listing.items) for listing in listings),
            is_asked=any(offered.view.is_asked for offered in self.lists.values()),
            is_pending=any(one.code == "pending" for one in missing),
            wants_login=any(one.code == LoginRequired.code for one in missing),
            reasons=tuple(dict.fromkeys(one.message for one in missing if one.is_failure)),
        )

    def server_of(self, method: str, name: str) -> str:
        """The server that a request about `name` (a resource: its URI) goes to; "" if that is not known."""
        match method:
            case "tools/call":
                owner = self.lists["tools"].view.known().by_name.get(name)
            case "prompts/get":
                owner = self.lists["prompts"].view.known().by_name.get(name)
            case _ if method.startswith("resources/"):
                owner = self._owner(name, self.lists["resources"].view.known(), self._templates())
            case _:
                owner = None
        return owner.server if owner is not None else ""

    def places_in_headers(self, tool: str) -> Places | None:
        """The arguments of a tool that its clients repeat in headers; None for nearly every tool."""
        tools = self.lists["tools"].view.known()
        if self._marked[0] is not tools:
            marked = (item for item in tools.items if MARK.encode() in item.definition.raw)
            places = {item.name: places_in(item.definition.object().get("inputSchema")) for item in marked}
            self._marked = (tools, {name: found for name, found in places.items() if found})
        return self._marked[1].get(tool)

    async def find_resource(self, uri: str, caller: Caller) -> Published | None:
        """The resource itself, else the template that may have made it: that with the longest beginning."""
        resources, templates = self.lists["resources"], self.lists["templates"]
        owner = self._owner(uri, await resources.view.current(caller), await templates.view.current(caller))
        return owner or self._owner(uri, await resources.news(caller), await templates.news(caller))

    def has_news(self, kind: Kind) -> bool:
        """Whether a change shows in what somebody has read; then it is their news once."""
        kinds: tuple[Kind, ...] = ("resources", "templates") if kind == "resources" else (kind,)
        has_changed = False
        for offered in (self.lists[kind] for kind in kinds):
            if offered.pages.was_read:
                offered.pages.show(offered.view.known())
                has_changed = has_changed or offered.pages.is_news
                offered.pages.is_news = False
        return has_changed

    def _templates(self) -> Listing:
        return self.lists["templates"].view.known()

    def _owner(self, uri: str, resources: Listing, templates: Listing) -> Published | None:
        if (resource := resources.by_name.get(uri)) is not None:
            return resource
        if self._matchers[0] is not templates:
            matchers = [(UriTemplate(item.name), item) for item in templates.items]
            matchers.sort(key=lambda pair: -len(pair[0].prefix))
            self._matchers = (templates, matchers)
        return next((item for template, item in self._matchers[1] if template.matches(uri)), None)
