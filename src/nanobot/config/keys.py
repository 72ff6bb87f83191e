"""Every key a document may hold: the one table that decides what is known, of which kind, in which range.

Only what the program carries out stands here. A key of a later version is unknown, never silently ignored.
"""

from __future__ import annotations

import re

from nanobot.config.diagnostics import Place
from nanobot.config.places import Origin
from nanobot.config.shapes import (
    Duration,
    Flag,
    Free,
    Ignored,
    Later,
    ListOf,
    MapOf,
    Names,
    Number,
    Shape,
    Table,
    Text,
    TextOr,
)

DIALECTS = ("OpenAIResponses", "OpenAIChatCompletions", "AnthropicMessages")
MODES = ("", "chat", "primary", "all", "subagent")
PERMISSIONS = (
    "*",
    "read",
    "write",
    "edit",
    "glob",
    "grep",
    "bash",
    "todoWrite",
    "webFetch",
    "skills",
    "askUserQuestion",
)

_AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")


def check_agent_id(name: str, at: Origin, place: Place) -> None:
    if not name or ":" in name:
        place.error("bad-id", at, "An agent id must not be empty or contain `:`.")
    elif not _AGENT_ID.fullmatch(name):
        place.warning(
            "bad-id",
            at,
            "An agent id should be letters, digits, `.`, `_`, `-`, beginning with a letter or digit.",
        )


def check_server_name(name: str, at: Origin, place: Place) -> None:
    if not name or "/" in name or ":" in name:
        place.error(
            "bad-id", at, "A server name must not be empty or contain `/` or `:`; references are cut there."
        )


def check_permission(name: str, at: Origin, place: Place) -> None:
    if name not in PERMISSIONS:
        place.error("unknown-key", at, f"There is no such permission; known: {', '.join(PERMISSIONS)}.")


_TEXTS = MapOf(Text())
_LIST_OF_ONE = Names(split=False)

HOOKS = MapOf(Names(split=False))
"""`event[?name=value&…]` → targets. Both are taken apart in `build_hooks`."""

FIELD: Shape = Later(lambda: _FIELD)
_FIELD = Table({"description": Text(), "required": Flag(), "fields": MapOf(FIELD)}, short="description")

INSTRUCTIONS = TextOr(
    Table({"mcpServer": Text(), "prompt": Text(), "args": _TEXTS}), "a mapping with mcpServer and prompt"
)

APPROVALS = Table(
    {
        "default": Text(("approve",)),
        "rules": ListOf(Table({"tool": Text(), "allow": Flag(), "when": Free()}), leads=True),
    }
)
"""What matchers may say is checked in `build_approvals`."""

AGENT = Table(
    {
        "name": Text(),
        "shortName": Text(),
        "description": Text(),
        "icon": Text(),
        "iconDark": Text(),
        "starterMessages": _LIST_OF_ONE,
        "metadata": Free(),
        "instructions": INSTRUCTIONS,
        "model": Text(),
        "fallbacks": Names(),
        "mcpServers": Names(),
        "tools": Names(),
        "agents": Names(),
        "prompts": Names(),
        "resources": Names(),
        "permissions": MapOf(Text(("allow", "deny")), check_permission),
        "toolApprovals": APPROVALS,
        "chat": Flag(),
        "toolChoice": Text(),
        "parallelTools": Text(("auto", "off")),
        "maxIterations": Number(1, 1000, whole=True),
        "temperature": Number(0),
        "topP": Number(0, 1),
        "reasoning": Table(
            {
                "effort": Text(("none", "minimal", "low", "medium", "high", "xhigh", "max")),
                "summary": Text(("auto", "concise", "detailed")),
            }
        ),
        "maxTokens": Number(1, whole=True),
        "contextWindow": Number(1, whole=True),
        "truncation": Text(),
        "aliases": Names(),
        "cost": Number(0),
        "speed": Number(0),
        "intelligence": Number(0),
        "output": Table(
            {
                "name": Text(
                    pattern=re.compile(r"[A-Za-z0-9_-]{1,64}"), expected="1 to 64 letters, digits, `_` or `-`"
                ),
                "description": Text(),
                "strict": Flag(),
                "fields": MapOf(FIELD),
                "schema": Free(),
            }
        ),
        "toolExtensions": MapOf(Free()),
        "mode": Text(),  # its words are checked with the agent, where the message can name it
        "default": Flag(),
        "hooks": HOOKS,
        "flows": Ignored("`flows` no longer exists and has no effect."),
    }
)

AGENT_FILE = Table({**AGENT.keys, "id": Text()})
"""Front matter of `agents/<id>.md`. Its `id` never counts; the file name does."""

_PLAIN = Text(
    pattern=re.compile(r"[a-zA-Z0-9@:/._][a-zA-Z0-9@:/._-]*"),
    expected="made of letters, digits and `@:/._-` alone, not beginning with `-`",
)
"""What may stand on a container engine's command line."""

SANDBOX = TextOr(
    Table(
        {
            "network": Text(("host", "none", "proxy")),
            "allowHosts": Names(),
            "writable": Names(split=False),
            "readable": Names(split=False),
            "memory": Text(
                pattern=re.compile(r"[1-9][0-9]{0,5}[mMgG]"),
                expected="a size such as `512m` or `2g`",
            ),
            "cpus": Number(0.01, 4096),
            "pids": Number(1, 4_194_304, whole=True),
            "sharedCache": Flag(),
            "clientRoots": Flag(),
            "extraArgs": Names(unique=False, split=False),
        }
    ),
    "a section",
)

MCP_SERVER = Table(
    {
        "name": Text(),
        "description": Text(),
        "url": Text(),
        "headers": _TEXTS,
        "command": Text(),
        "args": Names(unique=False, split=False),
        "env": _TEXTS,
        "cwd": Text(),
        "ports": Names(),
        "reversePorts": ListOf(Number(1, 65535, whole=True)),
        "sandbox": SANDBOX,
        "image": _PLAIN,
        "dockerfile": Text(),
        "source": Table(
            {
                "repo": Text(),
                "commit": _PLAIN,
                "tag": _PLAIN,
                "branch": _PLAIN,
                "reference": _PLAIN,
                "subPath": Text(),
            },
            short="repo",
        ),
        "workdir": Text(),
        "sandboxed": Flag(),
        "unsandboxed": Flag(),
        "type": Text(("stdio", "sse", "streamableHttp")),
        "protocol": Text(("auto", "legacy", "modern")),
        "sharing": Text(("session", "account", "global")),
        "sampling": Text(("off", "agents", "client", "ask")),
        "samplingMaxTokens": Number(1, whole=True),
        "maxConnections": Number(1, 100_000, whole=True),
        "allowTools": Names(),
        "toolOverrides": MapOf(Table({"name": Text(), "description": Text(), "inputSchema": Free()})),
        "toolPrefix": Text(),
        "oauth": Table(
            {"clientId": Text(), "clientSecret": Text(), "scopes": Names(), "allowHosts": Names()}
        ),
        "hooks": HOOKS,
        "timeoutMs": Number(0, 24 * 3600 * 1000, whole=True),
        "toolTimeout": Duration(0.001),
    }
)

LLM_PROVIDER = Table({"dialect": Text(DIALECTS), "apiKey": Text(), "baseURL": Text(), "headers": _TEXTS})

ENV_VARIABLE = Table(
    {
        "description": Text(),
        "default": Text(),
        "options": Names(),
        "optional": Flag(),
        "sensitive": Flag(),
        "useBearerToken": Flag(),
    },
    short="description",
)

PUBLISH = Table(
    {
        "name": Text(),
        "version": Text(),
        "instructions": Text(),
        "introduction": Text(),
        "entrypoint": Names(),
        "mcpServers": Names(),
        "tools": Names(),
        "prompts": Names(),
        "resources": Names(),
        "resourceTemplates": Names(),
    }
)

PROMPT = Table({"description": Text(), "template": Text(), "input": MapOf(FIELD)})

SERVER = Table(
    {
        "allowedHosts": Names(),
        "corsOrigins": Names(),
        "maxBodyBytes": Number(1024, 1 << 30, whole=True),
        "maxMessageBytes": Number(1024, 1 << 30, whole=True),
        "maxConcurrentRequests": Number(1, 100_000, whole=True),
        "listTtlMs": Number(0, 24 * 3600 * 1000, whole=True),
        "trustTraceContext": Flag(),
        "trustedProxies": Names(),
        "publicURL": Text(),
        "requireSecret": Flag(),
    }
)

AUTH = Table(
    {
        "apiKeys": ListOf(
            Table(
                {
                    "name": Text(),
                    "sha256": Text(pattern=re.compile(r"[0-9A-Fa-f]{64}"), expected="64 hexadecimal digits"),
                }
            )
        ),
        "trustedIssuer": Text(),
        "trustedAudiences": Names(),
        "jwks": Text(),
        "oauthJwksUrl": Text(),
        "apiKeyAuthWebhookUrl": Text(),
        "mcpServerId": Text(),
        "remoteHeaders": Flag(),
        "oauthClientId": Text(),
        "oauthClientSecret": Text(),
        "oauthAuthorizeUrl": Text(),
        "oauthTokenUrl": Text(),
        "oauthScopes": Names(),
        "oauthAuthorizationServerMetadata": Free(),
        "encryptionKey": Text(),
    },
    aliases={"apiKeyAuthUrl": "apiKeyAuthWebhookUrl"},
)

SESSIONS = Table({"idleTimeout": Duration(10), "maxLive": Number(1, 1_000_000, whole=True)})

HOOK_SETTINGS = Table({"secret": Text(), "env": _TEXTS})

_SECTIONS: dict[str, Shape] = {
    "env": MapOf(ENV_VARIABLE),
    "publish": PUBLISH,
    "agents": MapOf(AGENT, check_agent_id),
    "prompts": MapOf(PROMPT),
    "mcpServers": MapOf(MCP_SERVER, check_server_name),
    "llmProviders": MapOf(LLM_PROVIDER),
    "server": SERVER,
    "sessions": SESSIONS,
    "auth": AUTH,
    "hooks": HOOKS,
    "hookSettings": HOOK_SETTINGS,
}

MCP_DOCUMENT = Table(
    {
        "$schema": Ignored(),
        "mcpServers": MapOf(MCP_SERVER, check_server_name),
        "mcpRegistries": Ignored("Registries are not used by this version."),
    }
)
"""A whole `mcp.json`."""

DOCUMENT = Table(
    {
        "$schema": Ignored(),
        "extends": Names(),
        "profiles": MapOf(Table(_SECTIONS)),
        **_SECTIONS,
    }
)
"""A whole `nanobot.yaml`."""
