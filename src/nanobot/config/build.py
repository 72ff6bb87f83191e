"""The frozen configuration from one merged document; everything that is wrong in it is reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

from nanobot.config import builtin
from nanobot.config.build_agent import build_agent
from nanobot.config.build_auth import build_auth, networks, public_url
from nanobot.config.build_hooks import build_hooks
from nanobot.config.build_server import build_server, builtin_server, check_sharing
from nanobot.config.callers import check_personal, personal_headers
from nanobot.config.diagnostics import Diagnostics
from nanobot.config.fields import read_fields
from nanobot.config.hook_circles import check_hook_circles
from nanobot.config.http_values import check_address, check_headers, check_hosts, check_origins
from nanobot.config.keys import DOCUMENT
from nanobot.config.merge import merge
from nanobot.config.model import (
    Agent,
    AuthSettings,
    EnvVar,
    HookMapping,
    HookSettings,
    LlmProvider,
    McpServer,
    Prompt,
    PromptField,
    Publish,
    ServerSettings,
    SessionSettings,
)
from nanobot.config.nodes import Entries, Entry, Items, Scalar, from_plain, without_nulls
from nanobot.config.places import NOWHERE, Origin
from nanobot.config.references import Known
from nanobot.config.sources import Composed
from nanobot.config.view import View

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The parts of a `Config` that documents decide, and the document they came from, built-ins included."""

    document: Entries
    agents: Mapping[str, Agent]
    mcp_servers: Mapping[str, McpServer]
    llm_providers: Mapping[str, LlmProvider]
    prompts: Mapping[str, Prompt]
    publish: Publish
    env_vars: Mapping[str, EnvVar]
    server: ServerSettings
    sessions: SessionSettings
    auth: AuthSettings
    hooks: tuple[HookMapping, ...]
    hook_settings: HookSettings


def build(composed: Composed, found: Diagnostics, *, builtin_agents: bool, agent: str | None) -> Built:
    """`agent`: the id to put first among the entrypoints."""
    written = View(composed.document, composed.document.at, found.root)
    _check_names(written, builtin_agents=builtin_agents)
    if agent is None:
        _check_entrypoint(written, composed)
    document = _with_builtins(composed.document, builtin_agents=builtin_agents)
    view = View(document, document.at, found.root)
    known = Known(
        servers=_keys(view, "mcpServers") | builtin.SERVERS,
        agents=_keys(view, "agents"),
        prompts=_keys(view, "prompts"),
        providers=_keys(view, "llmProviders") | builtin.KNOWN_PROVIDERS.keys() | builtin.RESERVED_PROVIDERS,
    )
    if agent is not None:
        document = _with_first(document, agent, found, known)
        view = View(document, document.at, found.root)
    document = _in_order(document)
    env_vars = _each(view, "env", _env_var)
    servers = {name: builtin_server(name) for name in sorted(builtin.SERVERS)}
    for name, server in view.under("mcpServers").each():
        if (built := build_server(name, server, composed.folders, known)) is not None:
            built = replace(built, personal_headers=personal_headers(built, env_vars))
            servers[name] = built
            check_sharing(built, server, env_vars)
            check_personal(built, server)
    check_hook_circles(servers, view.under("mcpServers"))
    return Built(
        document=document,
        agents=_each(view, "agents", lambda id_, view: build_agent(id_, view, known, composed.folders)),
        mcp_servers=MappingProxyType(servers),
        llm_providers=_each(view, "llmProviders", _provider),
        prompts=_each(view, "prompts", _prompt),
        publish=_publish(view.under("publish"), known),
        env_vars=env_vars,
        server=_server_settings(view.under("server")),
        sessions=_session_settings(view.under("sessions")),
        auth=build_auth(view.under("auth"), view.under("server")),
        hooks=build_hooks("session", view, composed.folders, known),
        hook_settings=_hook_settings(view.under("hookSettings")),
    )


def _keys(view: View, section: str) -> set[str]:
    return set(view.entries(section))


def _each(view: View, section: str, build_one: Callable[[str, View], T]) -> Mapping[str, T]:
    return MappingProxyType({name: build_one(name, one) for name, one in view.under(section).each()})


def _check_names(view: View, *, builtin_agents: bool) -> None:
    """One name means one thing, and names of the program stay its own."""
    agents, servers, prompts = (view.under(key) for key in ("agents", "mcpServers", "prompts"))
    for name, agent in agents.each():
        if name.startswith(builtin.PREFIX) or (name == builtin.AGENT and builtin_agents):
            agent.place.error(
                "reserved-name", agent.at, f"The agent name {name!r} is reserved.", "choose another name"
            )
        elif servers.has(name):
            message = f"{name!r} is both an agent (under agents) and an MCP server (under mcpServers)."
            agent.place.error("duplicate-name", agent.at, message, "rename one of them")
        elif prompts.has(name):
            message = f"{name!r} is both an agent (under agents) and a prompt (under prompts)."
            agent.place.warning("duplicate-name", agent.at, message)
    for name, server in servers.each():
        if name == builtin.AGENT and builtin_agents:
            message = f"The server name {name!r} is that of the built-in agent."
            server.place.error("reserved-name", server.at, message, "choose another name")
        elif prompts.has(name):
            message = f"{name!r} is both an MCP server (under mcpServers) and a prompt (under prompts)."
            server.place.warning("duplicate-name", server.at, message)
    for name, provider in view.under("llmProviders").each():
        if name in builtin.RESERVED_PROVIDERS or "/" in name:
            reason = "is reserved" if "/" not in name else "contains `/`, where model names are cut"
            provider.place.error("reserved-name", provider.at, f"The provider name {name!r} {reason}.")


def _check_entrypoint(view: View, composed: Composed) -> None:
    agents = dict(view.under("agents").each())
    if not agents or view.under("publish").names("entrypoint"):
        return
    first = next(iter(agents.values()))
    place = view.place.key("publish").key("entrypoint")
    names = ", ".join(sorted(agents)[:20])
    if composed.markdown_agents or any(a.has("mode") or a.has("default") for a in agents.values()):
        folder, _, file = first.at.source.rpartition("/agents/")
        message = (
            f"No agent of {(folder if file and folder else first.at.source)!r} can be the default: {names}."
        )
        place.error(
            "no-default-agent",
            first.at,
            message,
            "set `default: true` on one, or name it in publish.entrypoint",
        )
    else:
        message = f"Nothing says which of the agents is the default: {names}."
        place.error("no-entrypoint", first.at, message, "name it in publish.entrypoint")


def _with_builtins(document: Entries, *, builtin_agents: bool) -> Entries:
    """`document` laid over what is built in; the built-in agent comes after all others."""
    below = from_plain({"llmProviders": builtin.PROVIDERS}, NOWHERE)
    above = from_plain(
        {"agents": {builtin.AGENT: builtin.agent_document()}, "publish": {"entrypoint": [builtin.AGENT]}},
        NOWHERE,
    )
    merged = without_nulls(merge(below, document))
    assert isinstance(merged, Entries)
    if builtin_agents:
        if builtin.AGENT in _entries(merged, "agents"):  # reported; do not mix the two
            return merged
        merged = merge(merged, above)
        assert isinstance(merged, Entries)
        return _with_entrypoint(merged, _entrypoint(merged))
    return merged


def _in_order(document: Entries) -> Entries:
    """The sections in the order of the table of keys, whatever was merged first."""
    entries = {key: document.entries[key] for key in DOCUMENT.keys if key in document.entries}
    return Entries(entries, document.at)


def _with_first(document: Entries, agent: str, found: Diagnostics, known: Known) -> Entries:
    at = Origin("(command line)", 1)
    if agent not in known.agents:
        message = (
            f"There is no agent {agent!r} to begin with; known agents: {', '.join(sorted(known.agents))}."
        )
        found.add("error", "unknown-agent", at, message)
        return document
    rest = tuple(item for item in _entrypoint(document) if item.value != agent)
    return _with_entrypoint(document, (Scalar(agent, at), *rest))


def _entries(document: Entries, key: str) -> dict[str, Entry]:
    entry = document.entries.get(key)
    return entry.node.entries if entry and isinstance(entry.node, Entries) else {}


def _entrypoint(document: Entries) -> tuple[Scalar, ...]:
    entry = _entries(document, "publish").get("entrypoint")
    items = entry.node.items if entry and isinstance(entry.node, Items) else ()
    distinct = {item.value: item for item in reversed(items) if isinstance(item, Scalar)}
    return tuple(reversed(distinct.values()))


def _with_entrypoint(document: Entries, items: tuple[Scalar, ...]) -> Entries:
    publish = dict(_entries(document, "publish"))
    before = publish.get("entrypoint")
    at = before.key_at if before else NOWHERE
    publish["entrypoint"] = Entry(at, Items(items, at, unique=True))
    section = document.entries.get("publish")
    at = section.key_at if section else NOWHERE
    return Entries({**document.entries, "publish": Entry(at, Entries(publish, at))}, document.at)


def _provider(name: str, view: View) -> LlmProvider:
    check_address(view, "baseURL")
    check_headers(view, "headers")
    return LlmProvider(
        name=name,
        dialect=view.value("dialect") or builtin.dialect_of(name) or "OpenAIResponses",
        api_key=view.text("apiKey"),
        base_url=view.text("baseURL").rstrip("/"),
        headers=view.value("headers", {}),
        origin=view.at,
    )


def _prompt(name: str, view: View) -> Prompt:
    fields = read_fields(view.entries("input"), view.place.key("input"))
    return Prompt(
        name=name,
        description=view.text("description"),
        template=view.text("template"),
        input=tuple(PromptField(name=f.name, description=f.description, required=f.required) for f in fields),
        origin=view.at,
    )


def _env_var(name: str, view: View) -> EnvVar:
    return EnvVar(
        name=name,
        description=view.text("description"),
        default=view.text("default"),
        options=view.names("options"),
        optional=view.value("optional", False),
        sensitive=view.value("sensitive", True),
        use_bearer_token=view.value("useBearerToken", False),
        origin=view.at,
    )


def _publish(view: View, known: Known) -> Publish:
    return Publish(
        name=view.text("name"),
        version=view.text("version"),
        instructions=view.text("instructions"),
        introduction=view.text("introduction"),
        entrypoint=view.references("entrypoint", known.agent),
        mcp_servers=view.references("mcpServers", known.server),
        tools=view.references("tools", known.tool),
        prompts=view.references("prompts", known.prompt),
        resources=view.references("resources", known.server),
        resource_templates=view.references("resourceTemplates", known.server),
        origin=view.at,
    )


def _server_settings(view: View) -> ServerSettings:
    default = ServerSettings()
    check_hosts(view, "allowedHosts")
    check_origins(view, "corsOrigins")
    return ServerSettings(
        allowed_hosts=view.names("allowedHosts"),
        cors_origins=view.names("corsOrigins"),
        max_body_bytes=view.value("maxBodyBytes", default.max_body_bytes),
        max_message_bytes=view.value("maxMessageBytes", default.max_message_bytes),
        max_concurrent_requests=view.value("maxConcurrentRequests", default.max_concurrent_requests),
        list_ttl_ms=view.value("listTtlMs", default.list_ttl_ms),
        trust_trace_context=view.value("trustTraceContext", default.trust_trace_context),
        trusted_proxies=networks(view, "trustedProxies"),
        public_url=public_url(view),
        require_secret=view.value("requireSecret", default.require_secret),
    )


def _session_settings(view: View) -> SessionSettings:
    default = SessionSettings()
    return SessionSettings(
        idle_timeout_s=float(view.value("idleTimeout", default.idle_timeout_s)),
        max_live=view.value("maxLive", default.max_live),
    )


def _hook_settings(view: View) -> HookSettings:
    return HookSettings(secret=view.text("secret"), env=view.value("env", {}))
