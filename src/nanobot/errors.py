"""Every error the product raises on purpose.

    NanobotError
    ├── ConfigError          what a person wrote cannot be used; exit status 2
    ├── UsageError           a command line that means nothing; exit status 2
    ├── NotFound             a named thing does not exist
    │   └── ToolNotFound
    ├── Busy                 a queue, a port or a limit is full; try again later
    ├── StoreError           the database could not do what was asked
    │   └── Duplicate        what was to be stored is there already
    ├── UpstreamError        an MCP server we use
    │   ├── UpstreamUnavailable   not reachable, crashed, or waiting before its next try
    │   │   └── LoginRequired     nobody may use it before a person has logged in
    │   └── UpstreamTimeout       no answer within its time
    ├── RpcError             a JSON-RPC error, ours or a peer's (`wire.rpc`)
    └── ProviderError        a model provider (`llm.model`)

A message is one sentence for a person: what happened, to which thing, what to do next. Secrets and tool
arguments never enter one. `code` is stable and meant for programs.
"""

from __future__ import annotations

from collections.abc import Sequence


class NanobotError(Exception):
    """Base of all deliberate errors. `str()` is fit for a person to read."""

    code: str = "error"


class ConfigError(NanobotError):
    """Configuration that cannot be used; nothing was started."""

    code = "config"


class UsageError(NanobotError):
    """A command line that cannot be carried out as written."""

    code = "usage"


class NotFound(NanobotError):
    """Something named does not exist (or belongs to somebody else, which is told the same way)."""

    code = "not_found"


class ToolNotFound(NotFound):
    """`name` is no tool of the source that was asked."""

    code = "tool.not_found"

    def __init__(self, name: str, known: list[str] | None = None) -> None:
        hint = f"; known tools: {', '.join(known[:40])}" if known else ""
        super().__init__(f"There is no tool {name!r}{hint}.")
        self.name = name


class Busy(NanobotError):
    """A bounded thing is full. The request had no effect and may be repeated later."""

    code = "busy"


class StoreError(NanobotError):
    """The database refused or failed; what was acknowledged before is still there."""

    code = "store"


class Duplicate(StoreError):
    """An id or key that must be unique is taken; nothing was stored."""

    code = "store.duplicate"


class UpstreamError(NanobotError):
    """Something went wrong with the MCP server `server`."""

    code = "upstream"

    def __init__(self, server: str, message: str) -> None:
        super().__init__(message)
        self.server = server


class UpstreamUnavailable(UpstreamError):
    """`server` cannot be reached now. `reason` is short; `maybe_sent`: the request may have run.

    `for_caller`: it was for what this caller brought along, or did not; another one may be served.
    """

    code = "upstream.unavailable"

    def __init__(
        self, server: str, reason: str, *, maybe_sent: bool = False, for_caller: bool = False
    ) -> None:
        super().__init__(server, f"MCP server {server!r} is not available: {reason}")
        self.reason = reason
        self.maybe_sent = maybe_sent
        self.for_caller = for_caller


class CredentialsRefused(UpstreamUnavailable):
    """`server` wants a token of whoever calls, or another than it got; `scopes` are those it asked for."""

    code = "upstream.credentials_refused"

    def __init__(
        self, server: str, reason: str, *, scopes: Sequence[str] = (), maybe_sent: bool = False
    ) -> None:
        super().__init__(server, reason, maybe_sent=maybe_sent, for_caller=True)
        self.scopes = tuple(scopes)


class LoginRequired(UpstreamUnavailable):
    """A person must log in to `server`, at `auth_url` ("" if no login can be completed in this process)."""

    code = "upstream.login_required"

    def __init__(self, server: str, reason: str, *, auth_url: str = "", account: str = "") -> None:
        """`account`: whose login it is; only that of "" can be had from a terminal."""
        how = f"`nanobot mcp login {server}` logs in from a terminal"
        super().__init__(server, f"{reason}; {'open the address in authUrl to log in' if account else how}")
        self.auth_url = auth_url


class UpstreamTimeout(UpstreamError):
    """`server` did not answer within `timeout_s` seconds. The request may have been executed."""

    code = "upstream.timeout"

    def __init__(self, server: str, timeout_s: float) -> None:
        super().__init__(server, f"MCP server {server!r} did not answer within {timeout_s:g} s.")
        self.timeout_s = timeout_s
