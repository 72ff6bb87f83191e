"""What this process serves as an MCP server: `publish` of the configuration, behind the wire's `Service`."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from nanobot.config.expand import expand
from nanobot.config.model import Agent, Config
from nanobot.config.places import Reference
from nanobot.errors import Busy, ConfigError
from nanobot.hub.followed import Followed
from nanobot.hub.hub import MAX_ACCOUNTS, Hub, is_forwarded, object_text
from nanobot.hub.offers import Offers
from nanobot.hub.pages import error_list
from nanobot.hub.prompts import prompt_arguments
from nanobot.hub.published import Offer, Published
from nanobot.hub.references import agent_reference
from nanobot.hub.relay import introduce, lone_server
from nanobot.hub.variables import check_variables
from nanobot.watchers import Watchers
from nanobot.wire.call import EVERYBODY, NOBODY, Audience, Call, Caller
from nanobot.wire.extensions import SHOWS_APPS, shows_apps
from nanobot.wire.notifications import ROOTS_CHANGED
from nanobot.wire.parameter_headers import check
from nanobot.wire.rpc import (
    BUSY,
    EMPTY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    Payload,
    RpcError,
)
from nanobot.wire.service import Announced, Description
from nanobot.wire.source import Kind

_NO_COMPLETION: Final = Payload(b'{"completion":{"values":[],"hasMore":false,"total":0}}')


Greeting = Callable[[Caller], Awaitable[Mapping[str, Any]]]
"""What is done when a client begins to use us; gives what it is told of its session, maybe nothing."""


class Publisher:
    """Answers downstreams from the hub.

    Holds nothing of any client but the lists of its account, so no answer can reach another one.
    """

    def __init__(
        self,
        config: Config,
        hub: Hub,
        *,
        version: str,
        greeting: Greeting | None = None,
        lists_anew: bool = False,
    ) -> None:
        """With `lists_anew` tools are listed again before each call of one.

        Raises `ConfigError` if `publish.introduction` refers to a variable that is not set.
        """
        self._greeting = greeting
        self._lists_anew = lists_anew
        self._agents = config.agents
        self._prefixes = {name: server.tool_prefix for name, server in config.mcp_servers.items()}
        self._declared = config.env_vars
        self._env = config.env
        self._hub = hub
        self._description = _describe(config, version)
        self._lone = lone_server(config)
        self._references = published_references(config)
        self._key = secrets.token_bytes(32)
        self._is_personal = any(hub.is_personal(references) for references in self._references.values())
        self._offers = OrderedDict[str, Offers]()
        self._watchers = Watchers[str, Payload, Audience]()
        self._followed = Followed()
        self._handlers: dict[str, Callable[[Payload, Call], Awaitable[Payload]]] = {
            "tools/list": self._lister("tools"),
            "prompts/list": self._lister("prompts"),
            "resources/list": self._lister("resources"),
            "resources/templates/list": self._lister("templates"),
            "tools/call": self._call_tool,
            "prompts/get": self._get_prompt,
            "resources/read": self._read_resource,
            "logging/setLevel": self._set_level,
            ROOTS_CHANGED: self._change_roots,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "completion/complete": self._complete,
        }
        hub.watch(self._tell)
        hub.hear(self._pass_on)

    async def describe(self, caller: Caller) -> Description:
        """Waits for nothing and has the lists prepared in the background meanwhile.

        If one server alone is published, it is that server's description, and only it can give one: raises
        `UpstreamUnavailable`. Raises `RpcError` (-32602) for a caller who wants an agent that there is not,
        and while a declared variable has no value.
        """
        if caller.agent and caller.agent not in self._agents:
            known = ", ".join(self._agents)
            raise RpcError(INVALID_PARAMS, f"there is no agent {caller.agent!r}; known: {known}")
        session = await self._greeting(caller) if self._greeting is not None else None
        if self._declared:
            check_variables(self._declared, self._env, caller)
        self.warm(caller)
        description = await self._describe(caller)
        return _with_session(description, session) if session else description

    async def _describe(self, caller: Caller) -> Description:
        if self._lone is not None:
            connected = await self._hub.introduction(self._lone, caller)
            if connected is not None:
                return introduce(self._description, connected)
        return self._description

    def warm(self, caller: Caller = NOBODY) -> None:
        """Have the lists prepared in the background; servers that were not needed yet are started."""
        self._offers_to(caller.account).warm(caller)

    def server_of(self, method: str, name: str, account: str = "") -> str:
        """The server that a request about `name` (a resource: its URI) goes to; "" if that is not known."""
        return self._offers_to(account).server_of(method, name)

    def offer(self) -> Offer:
        """What is there now, without waiting: as the account sees it that sees most."""
        self._offers_to("")
        return max((offers.summary() for offers in self._offers.values()), key=lambda offer: offer.things)

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        handler = self._handlers.get(method)
        if handler is not None:
            return await handler(params, call)
        if self._lone is not None:  # extensions of that server just work
            return await self._hub.request(self._lone, method, _for_server(params.members()), call)
        raise RpcError(METHOD_NOT_FOUND, f"unknown method {method!r}")

    def watch(self, changed: Announced) -> Callable[[], None]:
        return self._watchers.add(changed)

    def _lister(self, kind: Kind) -> Callable[[Payload, Call], Awaitable[Payload]]:
        async def answer(params: Payload, call: Call) -> Payload:
            offer = self._offers_to(call.caller.account).lists[kind]
            listing = await offer.view.current(call.caller)
            offer.pages.show(listing)
            if not listing.items and any(one.is_failure for one in listing.missing):
                reasons = " ".join(one.message for one in listing.missing)
                data = Payload.of({"errors": error_list(listing.missing)})
                raise RpcError(INTERNAL_ERROR, f"no {kind} could be listed: {reasons}", data)
            return offer.page(listing, _cursor(params), call.caller)

        return answer

    async def _call_tool(self, params: Payload, call: Call) -> Payload:
        members = params.members()
        name = _text(members, "name")
        offers = self._offers_to(call.caller.account)
        if self._lists_anew:
            offers.lists["tools"].view.list_anew(call.caller)
            await offers.lists["tools"].news(call.caller)
        tool = await offers.lists["tools"].find(name, call.caller)
        if tool is None or not (tool.is_for_models or shows_apps(call.caller)):
            raise self._unknown("tool", name, "tools", call)
        arguments = members.get("arguments")
        members["arguments"] = _EMPTY if arguments is None else msgspec.Raw(object_text(bytes(arguments)))
        if call.headers is not None and (places := offers.places_in_headers(name)) is not None:
            check(places, Payload.encoded(members["arguments"]).value, call.headers)
        members.pop("task", None)  # a client may ask for a task, but we do not offer any
        return await self._forward(tool, "tools/call", members, "name", call)

    async def _get_prompt(self, params: Payload, call: Call) -> Payload:
        members = params.members()
        name = _text(members, "name")
        prompt = await self._offers_to(call.caller.account).lists["prompts"].find(name, call.caller)
        if prompt is None:
            raise self._unknown("prompt", name, "prompts", call)
        prompt_arguments(name, params)
        return await self._forward(prompt, "prompts/get", members, "name", call)

    async def _read_resource(self, params: Payload, call: Call) -> Payload:
        members = params.members()
        uri = _text(members, "uri")
        owner = await self._offers_to(call.caller.account).find_resource(uri, call.caller)
        if owner is None:
            raise self._unknown_resource(uri, call)
        return await self._forward(owner, "resources/read", members, None, call)

    async def _set_level(self, params: Payload, call: Call) -> Payload:
        await self._hub.tell_all("logging/setLevel", _for_server(params.members()), call)
        return EMPTY

    async def _change_roots(self, params: Payload, call: Call) -> Payload:
        await self._hub.tell_all(ROOTS_CHANGED, _for_server(params.members()), call)
        return EMPTY

    async def _subscribe(self, params: Payload, call: Call) -> Payload:
        members = params.members()
        account, uri = call.caller.account, _text(members, "uri")
        server = self._followed.owner(account, uri)
        if server is None:
            owner = await self._offers_to(account).find_resource(uri, call.caller)
            if owner is None:
                raise self._unknown_resource(uri, call)
            server = owner.server
        if not self._hub.is_inside(server):  # one in this process needs no asking
            await self._hub.request(server, "resources/subscribe", _for_server(members), call)
        self._followed.begin(account, uri, server)
        return EMPTY

    async def _unsubscribe(self, params: Payload, call: Call) -> Payload:
        members = params.members()
        account, uri = call.caller.account, _text(members, "uri")
        server = self._followed.owner(account, uri)
        if server is not None:
            self._followed.end(account, uri)
            if not self._hub.is_inside(server):
                await self._hub.request(server, "resources/unsubscribe", _for_server(members), call)
        return EMPTY

    async def _complete(self, params: Payload, call: Call) -> Payload:
        members = params.members()
        ref = Payload.encoded(members.get("ref", b"null")).members()
        kind = _text(ref, "type")
        lists = self._offers_to(call.caller.account).lists
        match kind:
            case "ref/prompt":
                field, offer = "name", lists["prompts"]
            case "ref/resource":
                field, offer = "uri", lists["templates"]
            case _:
                raise RpcError(INVALID_PARAMS, f"unknown kind of reference {kind!r}")
        name = _text(ref, field)
        owner = await offer.find(name, call.caller)
        if owner is None:
            what, among = ("prompt", "prompts") if kind == "ref/prompt" else ("template", "templates")
            unlisted = self._unlisted(what, name, (among,), call)
            raise unlisted or RpcError(INVALID_PARAMS, f"nothing to complete: {kind} {name!r} is unknown")
        members["ref"] = msgspec.Raw(_encode(ref | {field: msgspec.Raw(_encode(owner.own_name))}))
        try:
            return await self._forward(owner, "completion/complete", members, None, call)
        except RpcError as e:
            if e.rpc_code == METHOD_NOT_FOUND:
                return _NO_COMPLETION
            raise

    async def _forward(
        self, owner: Published, method: str, members: dict[str, msgspec.Raw], field: str | None, call: Call
    ) -> Payload:
        """Pass the request on, under the server's own name in `field`."""
        if field is not None and owner.own_name != owner.name:
            members[field] = msgspec.Raw(_encode(owner.own_name))
        return await self._hub.request(owner.server, method, _for_server(members), call)

    def _offers_to(self, account: str) -> Offers:
        """The lists of `account`; one set for all while no published server tells accounts apart."""
        if not self._is_personal:
            account = ""
        offers = self._offers.get(account)
        if offers is None:
            if len(self._offers) >= MAX_ACCOUNTS:
                self._offers.popitem(last=False)
            offers = self._offers[account] = Offers(self._hub, self._references, account, self._key)
        elif self._is_personal:
            self._offers.move_to_end(account)
            self._hub.is_there(account)
        return offers

    def _unknown(self, what: str, name: str, kind: Kind, call: Call) -> RpcError:
        if (unlisted := self._unlisted(what, name, (kind,), call)) is not None:
            return unlisted
        missing = self._offers_to(call.caller.account).lists[kind].view.known().missing
        data = Payload.of({"errors": error_list(missing)}) if missing else None
        return RpcError(INVALID_PARAMS, f"unknown {what} {name!r}", data)

    def _unknown_resource(self, uri: str, call: Call) -> RpcError:
        unlisted = self._unlisted("resource", uri, ("resources", "templates"), call)
        data = Payload.of({"uri": uri})
        return unlisted or RpcError(RESOURCE_NOT_FOUND, f"unknown resource {uri!r}", data)

    def _unlisted(self, what: str, name: str, kinds: Sequence[Kind], call: Call) -> RpcError | None:
        """What is said of a name that may be of a server whose list is not there; None if there is none such.

        Then the client's request may be quite right, and nobody but us is to blame.
        """
        lists = self._offers_to(call.caller.account).lists
        missing = [one for kind in kinds for one in lists[kind].view.known().missing if one.is_unlisted]
        if "tools" in kinds:
            missing = [one for one in missing if name.startswith(self._prefixes.get(one.server, ""))]
        if not missing:
            return None
        first = missing[0]
        reasons = " ".join(dict.fromkeys(one.message for one in missing))
        data: dict[str, Any] = {
            "server": first.server,
            "reason": first.message,
            "errors": error_list(missing),
        }
        if any(one.is_passing for one in missing):
            data["retryable"] = True
        code = BUSY if all(one.code == Busy.code for one in missing) else INTERNAL_ERROR
        return RpcError(code, f"the {what} {name!r} could not be looked up: {reasons}", Payload.of(data))

    def _tell(self, kind: Kind, account: str | None) -> None:
        """Announce a change of the hub to accounts that see it in what we publish and have read that."""
        for name, offers in tuple(self._offers.items()):
            if account in (None, name) and offers.has_news(kind):
                whom = Audience(name) if self._is_personal else EVERYBODY
                self._watchers.tell(f"notifications/{kind}/list_changed", Payload(b"{}"), whom)

    def _pass_on(self, server: str, method: str, params: Payload, audience: Audience) -> None:
        """Tell clients what a server said on its own, as far as it can concern them."""
        match method:
            case "notifications/resources/updated":
                concerns = self._followed.is_told(server, params.object().get("uri"))
            case "notifications/message":
                concerns = True
            case "notifications/elicitation/complete":
                concerns = audience.session is not None  # nobody else is to learn that somebody was asked
            case _:
                concerns = server == self._lone  # extensions of that server just work
        if not concerns:
            return
        self._watchers.tell(method, params, audience)


def published_references(config: Config) -> dict[Kind, tuple[Reference, ...]]:
    """What `publish` leads to, in the order in which later names win: agents, servers, single things."""
    publish = config.publish
    agents = [config.agents[entry] for entry in publish.entrypoint if entry in config.agents]
    chats = tuple(agent_reference(agent.id) for agent in agents)
    whole = _whole_servers(*agents) + publish.mcp_servers
    resources = tuple(ref for agent in agents for ref in agent.resources)
    return {
        "tools": chats + publish.mcp_servers + publish.tools,
        "prompts": whole + tuple(ref for agent in agents for ref in agent.prompts) + publish.prompts,
        "resources": whole + resources + publish.resources,
        "templates": whole + resources + publish.resource_templates,
    }


def _whole_servers(*agents: Agent) -> tuple[Reference, ...]:
    return tuple(Reference(ref.server) for agent in agents for ref in agent.mcp_servers if ref.tool is None)


def _describe(config: Config, version: str) -> Description:
    publish = config.publish
    capabilities: dict[str, Any] = {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "logging": {},
        "completions": {},
        "extensions": {**SHOWS_APPS},
    }
    if publish.introduction:
        try:
            intro = expand(publish.introduction, config.env)
        except ConfigError as e:
            raise ConfigError(f"{publish.origin}: publish.introduction: {e}") from e
        capabilities["experimental"] = {"ai.nanobot": {"intro": intro}}
    return Description(
        server_info={"name": publish.name or "nanobot", "version": publish.version or version},
        capabilities=capabilities,
        instructions=publish.instructions,
    )


def _with_session(description: Description, session: Mapping[str, Any]) -> Description:
    experimental = dict(description.capabilities.get("experimental", {}))
    experimental["ai.nanobot"] = {"session": session, **experimental.get("ai.nanobot", {})}
    return replace(description, capabilities={**description.capabilities, "experimental": experimental})


class _List(msgspec.Struct):
    cursor: str | None = None


_list = msgspec.json.Decoder(_List)
_string = msgspec.json.Decoder(str)
_encode = msgspec.json.Encoder().encode
_EMPTY: Final = msgspec.Raw(b"{}")


def _for_server(members: dict[str, msgspec.Raw]) -> Payload:
    """Params as they go on to a server: without what belongs to the client's connection alone."""
    if "_meta" in members:
        meta = Payload.encoded(members.pop("_meta")).members()
        if kept := {key: value for key, value in meta.items() if is_forwarded(key)}:
            members["_meta"] = msgspec.Raw(_encode(kept))
    return Payload(_encode(members))


def _cursor(params: Payload) -> str | None:
    try:
        return _list.decode(params.raw).cursor
    except msgspec.DecodeError as e:
        raise RpcError(INVALID_PARAMS, f"bad list request: {e}") from e


def _text(members: Mapping[str, msgspec.Raw], field: str) -> str:
    try:
        return _string.decode(members[field])
    except KeyError:
        raise RpcError(INVALID_PARAMS, f"{field!r} is missing") from None
    except msgspec.DecodeError as e:
        raise RpcError(INVALID_PARAMS, f"{field!r} must be a string") from e
