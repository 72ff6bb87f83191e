"""An MCP server of the model from its mapping in the document."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from nanobot.config import builtin
from nanobot.config.build_hooks import build_hooks
from nanobot.config.build_sandbox import build_sandbox, build_source, check_container, in_container
from nanobot.config.callers import value_of_the_caller
from nanobot.config.http_values import OURS, check_address, check_headers, check_permitted
from nanobot.config.json_schema import check_schema
from nanobot.config.model import EnvVar, McpServer, OAuthSettings, ToolOverride
from nanobot.config.references import Known
from nanobot.config.view import View


def build_server(name: str, server: View, folders: Mapping[str, Path], known: Known) -> McpServer | None:
    """The server, None after reporting that its name belongs to the program.

    `folders`: directory of each document by its label. The document that says `cwd`, else the one that
    declares the server, gives the base of a relative one.
    """
    if name.startswith(builtin.PREFIX):
        if name in builtin.SERVERS and not server.node.entries:
            return builtin_server(name)
        reason = "is built in and takes no settings" if name in builtin.SERVERS else "is reserved"
        hint = f"write {name}: {{}}, or leave it out" if name in builtin.SERVERS else "choose another name"
        server.place.error("reserved-name", server.at, f"The server name {name!r} {reason}.", hint)
        return None
    _check_shape(name, server)
    return McpServer(
        name=name,
        display_name=server.text("name"),
        description=server.text("description"),
        url=server.text("url"),
        headers=server.value("headers", {}),
        command=server.text("command"),
        args=server.names("args"),
        env=server.value("env", {}),
        cwd=server.text("cwd"),
        ports=server.names("ports") or ("mcp",),
        reverse_ports=tuple(map(int, dict.fromkeys(server.names("reversePorts")))),
        sandbox=build_sandbox(server),
        image=server.text("image"),
        dockerfile=server.text("dockerfile"),
        source=build_source(server),
        workdir=server.text("workdir"),
        in_container=in_container(server),
        transport=_transport(server),
        protocol=server.value("protocol", "auto"),
        sampling=server.value("sampling", "agents"),
        sampling_max_tokens=server.value("samplingMaxTokens", 4096),
        sharing=server.value("sharing", "session"),
        max_connections=server.value("maxConnections"),
        allow_tools=server.names("allowTools") if server.has("allowTools") else None,
        tool_overrides=_overrides(server),
        tool_prefix=server.text("toolPrefix"),
        oauth=_oauth(server),
        hooks=build_hooks("server", server, folders, known),
        timeout_ms=server.value("timeoutMs", 30_000),
        tool_timeout_s=float(server.value("toolTimeout", 300.0)),
        base_dir=folders.get((server.origin("cwd") if server.has("cwd") else server.at).source, Path()),
        origin=server.at,
    )


def builtin_server(name: str) -> McpServer:
    return McpServer(name=name, builtin=True)


def _check_shape(name: str, server: View) -> None:
    command, url = server.text("command"), server.text("url")
    check_container(name, server)
    is_started = command or in_container(server)
    hint = "`command` starts a program, `url` reaches a server, both start one and reach it over HTTP"
    if not is_started and not url:
        server.place.error(
            "bad-server-shape", server.at, f"The server {name!r} needs `command` or `url`.", hint
        )
    elif not url:
        _reject(server, "headers", name, "`headers` are for servers with `url`")
        _reject(server, "oauth", name, "`oauth` is for servers with `url`")
    elif not is_started:
        for key in ("args", "env", "cwd", "workdir", "sandbox"):
            _reject(server, key, name, f"`{key}` is for servers with `command`")
    elif server.under("sandbox").value("network", "host") != "host":
        server.place.key("sandbox").error(
            "bad-server-shape",
            server.origin("sandbox"),
            f"The server {name!r} is reached by its `url`, which needs `network: host`.",
        )
    _check_type(name, server, url)
    if not (is_started and url):
        _reject(server, "ports", name, "`ports` are for servers with both `command` and `url`")
    check_address(server, "url")
    check_headers(server, "headers", ours=OURS)


_TRANSPORTS: Mapping[str, Literal["streamableHttp", "sse"]] = {
    "streamableHttp": "streamableHttp",
    "sse": "sse",
}


def _transport(server: View) -> Literal["auto", "streamableHttp", "sse"]:
    return _TRANSPORTS.get(server.text("type"), "auto")


def _check_type(name: str, server: View, url: str) -> None:
    kind = server.text("type")
    place, at = server.place.key("type"), server.origin("type")
    if kind == "stdio" and url:
        place.error("bad-server-shape", at, f"The server {name!r} has a `url`, so its type is not stdio.")
    if kind in _TRANSPORTS and not url:
        place.error("bad-server-shape", at, f"The server {name!r} of type {kind} needs a `url`.")
    if kind == "sse" and server.value("protocol", "auto") == "modern":
        place.error("bad-server-shape", at, f"The server {name!r}: there is no `protocol: modern` over sse.")


def _reject(server: View, key: str, name: str, reason: str) -> None:
    if server.has(key):
        message = f"The server {name!r} cannot have this: {reason}."
        server.place.key(key).error("bad-server-shape", server.origin(key), message)


def check_sharing(server: McpServer, view: View, variables: Mapping[str, EnvVar]) -> None:
    """One connection for everybody cannot be made with what only one caller has."""
    text = value_of_the_caller(server, variables) if server.sharing == "global" else None
    if text is not None:
        view.place.key("sharing").error(
            "bad-value",
            view.origin("sharing"),
            f"The server {server.name!r} cannot be shared by all: {text} differs from caller to caller.",
            "write `sharing: account`, or leave it out",
        )


def _oauth(server: View) -> OAuthSettings | None:
    if not server.has("oauth"):
        return None
    oauth = server.under("oauth")
    if oauth.has("clientSecret") and not oauth.has("clientId"):
        oauth.place.key("clientSecret").error(
            "bad-value", oauth.origin("clientSecret"), "A clientSecret needs the clientId it belongs to."
        )
    check_permitted(oauth, "allowHosts")
    return OAuthSettings(
        client_id=oauth.text("clientId"),
        client_secret=oauth.text("clientSecret"),
        scopes=oauth.names("scopes"),
        allow_hosts=oauth.names("allowHosts"),
    )


def _overrides(server: View) -> dict[str, ToolOverride]:
    overrides: dict[str, ToolOverride] = {}
    names: dict[str, str] = {}
    for tool, view in server.under("toolOverrides").each():
        schema = view.value("inputSchema")
        if schema is not None:
            check_schema(schema, view.origin("inputSchema"), view.place.key("inputSchema"))
        override = ToolOverride(
            name=view.value("name"), description=view.value("description"), input_schema=schema
        )
        overrides[tool] = override
        shown = override.name or tool
        if names.setdefault(shown, tool) != tool:
            view.place.error("bad-value", view.at, f"Two tools of one server are both named {shown!r}.")
    return overrides
