"""The one configuration model: frozen, validated, every object knowing the place it was written.

Nothing here reads files or the environment. Text that may hold `${NAME}` is kept as written; whoever uses
it expands it then (`config.expand`), so that `config show` never prints a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nanobot.config.approvals import Approvals
from nanobot.config.places import NOWHERE, Origin, Reference
from nanobot.errors import ConfigError

Dialect = Literal["OpenAIChatCompletions", "OpenAIResponses", "AnthropicMessages"]
Mode = Literal["chat", "primary", "all", "subagent"]
Permission = Literal["allow", "deny"]
Sharing = Literal["session", "account", "global"]
"""Who shares one connection to a server, and so one process of it: the requests of one session (or one
conversation), all of one account, or everybody."""
ToolChoice = str
"""`auto`, `none`, `required` or the published name of a tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookTarget:
    """What runs when something happens: a tool, a web address, or a function in a file.

    Exactly one of `tool`, `url` and `path` is set. `text` is the target as written, prefixes included;
    `export` names the function ("": the default export of a script).
    """

    text: str
    tool: Reference | None = None
    url: str = ""
    path: Path | None = None
    export: str = ""
    may_mutate: bool = True
    is_optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HookMapping:
    """One key of a `hooks` section, `event[?name=value&…]`, and what runs for it, in order."""

    key: str
    event: str
    params: Mapping[str, str] = field(default_factory=dict[str, str])
    targets: tuple[HookTarget, ...] = ()

    def concerns(self, method: str) -> bool:
        """Whether it could run for some message of `method`."""
        return self.event in (method, "*") and self.params.get("method", method) == method


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSettings:
    """Section `hookSettings`. Values may hold `${NAME}`."""

    secret: str = field(default="", repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRef:
    """Instructions that are fetched from a prompt: of `server`, or inline when `server` is empty."""

    server: str
    prompt: str
    args: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSchema:
    """The shape an agent's final answer must have."""

    name: str = "output_schema"
    description: str = ""
    schema: Mapping[str, Any]
    strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    effort: str | None = None
    summary: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A configured persona with a model and tools. `model` "" means the default model."""

    id: str
    name: str = ""
    short_name: str = ""
    description: str = ""
    icon: str = ""
    icon_dark: str = ""
    starter_messages: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    instructions: str | PromptRef | None = None
    model: str = ""
    fallbacks: tuple[str, ...] = ()
    mcp_servers: tuple[Reference, ...] = ()
    tools: tuple[Reference, ...] = ()
    agents: tuple[str, ...] = ()
    prompts: tuple[Reference, ...] = ()
    resources: tuple[Reference, ...] = ()
    permissions: Mapping[str, Permission] | None = None
    tool_approvals: Approvals | None = None
    """None: no call is asked about."""
    chat: bool = True
    tool_choice: ToolChoice | None = None
    parallel_tools: bool = True
    max_iterations: int = 200
    temperature: float | None = None
    top_p: float | None = None
    reasoning: Reasoning | None = None
    max_tokens: int | None = None
    context_window: int | None = None
    truncation: str | None = None
    aliases: tuple[str, ...] = ()
    """Names by which servers that want a model may ask for this agent."""
    cost: float = 0.0
    speed: float = 0.0
    intelligence: float = 0.0
    """For a choice among several that could answer a server: more is better, so what is cheap has much."""
    output: OutputSchema | None = None
    tool_extensions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    mode: Mode | None = None
    default: bool = False
    hooks: tuple[HookMapping, ...] = ()
    origin: Origin = NOWHERE

    @property
    def display_name(self) -> str:
        return self.name or self.short_name or self.id

    def permits(self, key: str) -> bool:
        """Whether `permissions` grant the built-in tool group `key`. A named key beats `*` in any order."""
        if self.permissions is None:
            return True
        return self.permissions.get(key, self.permissions.get("*", "allow")) == "allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOverride:
    name: str | None = None
    description: str | None = None
    input_schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """How a server that we start is confined. Paths hold `${NAME}`; relative ones count from `base_dir`.

    `network`: "host" the machine's own, "none", or "proxy": none but a filtering HTTP proxy, which refuses
    private addresses except those of `allow_hosts` (names, addresses, networks) and the metadata addresses
    of clouds always. Limits of None are those of the system (of a container: 2 GiB, 2 CPUs, 512 processes).
    """

    network: Literal["host", "none", "proxy"] = "host"
    allow_hosts: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    shared_cache: bool = False
    """Of a server in a container: its caches are those of all servers that say so."""
    client_roots: bool = False
    """Of a server in a container: it learns of roots of clients that lie in one of the operator's."""
    extra_args: tuple[str, ...] = ()
    """Options for the container engine, of a server in a container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSource:
    """Code that is added to a container's image: a git repository or a local directory."""

    repo: str = ""
    commit: str = ""
    tag: str = ""
    branch: str = ""
    reference: str = ""
    sub_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSettings:
    """How we log in to a server: our registration there, and the scopes to ask for. All may be left out.

    `allow_hosts`: private names, addresses and networks that the server may send us to for a login.
    """

    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """An MCP server we use. `command` alone: stdio process; `url` alone: remote; both: a process that serves
    HTTP; an image: the same in a container; none of them: built in.

    `allow_tools` None means all tools, an empty tuple none. `sandbox` None: the process is not confined.
    `max_connections` None: as many as there may be sessions, or, of one that we start, 100.
    """

    name: str
    display_name: str = ""
    description: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    personal_headers: frozenset[str] = frozenset()
    """Which of the headers are made anew for each request, from what its caller brings along."""
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str = ""
    ports: tuple[str, ...] = ("mcp",)
    reverse_ports: tuple[int, ...] = ()
    """Ports of this machine that a server in a container reaches at its own `localhost`."""
    sandbox: SandboxSettings | None = field(default_factory=SandboxSettings)
    image: str = ""
    dockerfile: str = ""
    source: ImageSource | None = None
    workdir: str = ""
    in_container: bool = False
    transport: Literal["auto", "streamableHttp", "sse"] = "auto"
    """How a server with a url is spoken to; auto: as it wants it."""
    protocol: Literal["auto", "legacy", "modern"] = "auto"
    sharing: Sharing = "session"
    sampling: Literal["off", "agents", "client", "ask"] = "agents"
    sampling_max_tokens: int = 4096
    max_connections: int | None = None
    allow_tools: tuple[str, ...] | None = None
    tool_overrides: Mapping[str, ToolOverride] = field(default_factory=dict[str, ToolOverride])
    tool_prefix: str = ""
    oauth: OAuthSettings | None = None
    hooks: tuple[HookMapping, ...] = ()
    timeout_ms: int = 30_000
    tool_timeout_s: float = 300.0
    builtin: bool = False
    is_trusted: bool = True
    """Whether the operator wrote it down. Another one is reached on public addresses alone, and is given
    nothing that a caller brings along."""
    base_dir: Path = Path()
    """Directory of the document that declares the server: base of a relative `cwd`."""
    origin: Origin = NOWHERE

    @property
    def is_started(self) -> bool:
        """Whether we start it, here or in a container."""
        return bool(self.command) or self.in_container


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmProvider:
    """A model provider. Empty `base_url`/`api_key`: the dialect's or the registry's default."""

    name: str
    dialect: Dialect
    api_key: str = ""
    base_url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptField:
    name: str
    description: str = ""
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """An inline prompt: a template with `${argument}` places."""

    name: str
    description: str = ""
    template: str = ""
    input: tuple[PromptField, ...] = ()
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvVar:
    """A declared variable. `sensitive` ones are masked wherever they are shown."""

    name: str
    description: str = ""
    default: str = ""
    options: tuple[str, ...] = ()
    optional: bool = False
    sensitive: bool = True
    use_bearer_token: bool = False
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """What this process serves as an MCP server. `entrypoint[0]` is the default agent."""

    name: str = ""
    version: str = ""
    instructions: str = ""
    introduction: str = ""
    entrypoint: tuple[str, ...] = ()
    mcp_servers: tuple[Reference, ...] = ()
    tools: tuple[Reference, ...] = ()
    prompts: tuple[Reference, ...] = ()
    resources: tuple[Reference, ...] = ()
    resource_templates: tuple[Reference, ...] = ()
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Section `server`: the HTTP listener and its limits."""

    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    max_body_bytes: int = 32 * 1024 * 1024
    max_message_bytes: int = 64 * 1024 * 1024
    max_concurrent_requests: int = 128
    list_ttl_ms: int = 0
    trust_trace_context: bool = False
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks whose forwarded headers are believed."""
    public_url: str = ""
    """Scheme and host under which clients reach us, without a `/` at its end; "" where they say it."""
    require_secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key that somebody may use us with. `sha256`: of the key, in lower-case hexadecimal digits."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings:
    """Section `auth`: who may use us. Texts may hold `${NAME}`."""

    api_keys: tuple[ApiKey, ...] = ()
    trusted_issuer: str = ""
    trusted_audiences: tuple[str, ...] = ()
    jwks: str = field(default="", repr=False)
    oauth_jwks_url: str = ""
    api_key_auth_webhook_url: str = ""
    mcp_server_id: str = ""
    remote_headers: bool = False
    oauth_client_id: str = ""
    oauth_client_secret: str = field(default="", repr=False)
    oauth_authorize_url: str = ""
    oauth_token_url: str = ""
    oauth_scopes: tuple[str, ...] = ()
    oauth_authorization_server_metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    encryption_key: str = field(default="", repr=False)

    @property
    def takes_bearer_tokens(self) -> bool:
        return bool(
            self.api_keys or self.trusted_issuer or self.api_key_auth_webhook_url or self.oauth_client_id
        )

    @property
    def is_on(self) -> bool:
        return self.takes_bearer_tokens or self.remote_headers


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """Section `sessions`: MCP sessions of clients that use us."""

    idle_timeout_s: float = 900.0
    max_live: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything one installation was told. Immutable: share it between tasks and threads.

    `origins` maps a dotted path (`agents.main.tools[0]`) to the place it was written. `document` is the
    merged document itself, canonical keys, unexpanded: show it only through `config.redact`. `env` is the
    session environment that `${NAME}` is looked up in: process environment, env file and `-e` values, in that
    order.
    """

    home: Path
    sources: tuple[str, ...] = ()
    agents: Mapping[str, Agent] = field(default_factory=dict[str, Agent])
    mcp_servers: Mapping[str, McpServer] = field(default_factory=dict[str, McpServer])
    llm_providers: Mapping[str, LlmProvider] = field(default_factory=dict[str, LlmProvider])
    prompts: Mapping[str, Prompt] = field(default_factory=dict[str, Prompt])
    publish: Publish = field(default_factory=Publish)
    env_vars: Mapping[str, EnvVar] = field(default_factory=dict[str, EnvVar])
    server: ServerSettings = field(default_factory=ServerSettings)
    sessions: SessionSettings = field(default_factory=SessionSettings)
    auth: AuthSettings = field(default_factory=AuthSettings)
    hooks: tuple[HookMapping, ...] = ()
    hook_settings: HookSettings = field(default_factory=HookSettings)
    default_model: str = ""
    default_mini_model: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    origins: Mapping[str, Origin] = field(default_factory=dict[str, Origin], repr=False)
    document: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def default_agent(self) -> Agent:
        """The agent of whoever names none. Raises `ConfigError` where there are only servers to relay."""
        if not self.publish.entrypoint:
            raise ConfigError(
                "This configuration has no agent to talk to; add one, or name one with --agent."
            )
        return self.agents[self.publish.entrypoint[0]]
