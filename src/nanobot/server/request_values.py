"""What a request brings along for the headers of MCP servers: its token, and values for declared variables.

Composed only where the configuration passes such things on; nothing else of a request ever leaves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from nanobot.config.environment import BEARER_TOKEN
from nanobot.config.expand import find_variable
from nanobot.config.model import Config
from nanobot.server.auth.authenticator import bearer_of
from nanobot.server.auth.forwarded import SCHEME as PROXY
from nanobot.server.auth.launch_secret import SCHEME as LAUNCH_SECRET
from nanobot.server.auth.principal import Principal
from nanobot.server.auth.proxy.grants import SCHEME as OAUTH
from nanobot.wire.http_request import Refusal
from nanobot.wire.rpc import INVALID_PARAMS, RpcError

PREFIX = b"x-nanobot-env-"
MAX_VALUE: Final = 6 * 1024
"""Bytes of one value: servers refuse a header beyond 8 KiB, and more than the value may stand in it."""

_is_printable = re.compile(rb"[\x20-\x7e\t]*").fullmatch


def passes_values_on(config: Config) -> bool:
    """Whether callers may bring something along: for headers of MCP servers, or as a declared variable."""
    if config.env_vars or config.auth.oauth_token_url:
        return True
    return any(server.personal_headers for server in config.mcp_servers.values())


class RequestValues:
    """Sets `scope["state"]["values"]` for `inner`: what `${NAME}` means for this request alone."""

    def __init__(self, inner: ASGIApp, config: Config) -> None:
        self._inner = inner
        self._declared = {name.lower().replace("-", "_"): name for name in config.env_vars}
        self._wants_token = [
            name
            for name, variable in config.env_vars.items()
            if variable.use_bearer_token and find_variable(name, config.env) is None
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                scope.setdefault("state", {})["values"] = self._values(scope)
            except RpcError as senseless:
                await Refusal(400, senseless).send(send)
                return
        await self._inner(scope, receive, send)

    def _values(self, scope: Scope) -> Mapping[str, str]:
        """Raises `RpcError` (-32602) for a value that no header could carry to a server."""
        values: dict[str, str] = {}
        if token := _token(scope):
            values = dict.fromkeys((*self._wants_token, BEARER_TOKEN), token)
        given: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            if name.startswith(PREFIX):
                declared = self._declared.get(name[len(PREFIX) :].decode("latin-1").lower().replace("-", "_"))
                if declared is not None:  # else anybody could point our own settings elsewhere
                    _check(name, value)
                    given.setdefault(declared, []).append(value.decode("latin-1"))
        return values | {name: ", ".join(several) for name, several in given.items()}


def _check(name: bytes, value: bytes) -> None:
    header = name.decode("latin-1")
    if len(value) > MAX_VALUE:
        raise RpcError(
            INVALID_PARAMS, f"header {header}: {len(value)} bytes; at most {MAX_VALUE} are passed on"
        )
    if not _is_printable(value):
        raise RpcError(INVALID_PARAMS, f"header {header}: only printable ASCII characters are passed on")


def _token(scope: Scope) -> str:
    """The token that stands for the caller towards others; "" if there is none.

    What we gave out ourselves is for us alone: whoever signed in through us is represented by the token of
    their identity provider.
    """
    state: Mapping[str, Any] = scope["state"]
    principal: Principal | None = state.get("principal")
    scheme = principal.scheme if principal is not None else ""
    if principal is not None and scheme == OAUTH:
        return principal.token
    if scheme == LAUNCH_SECRET:
        return ""
    if scheme == PROXY:
        remote: Mapping[bytes, bytes] = state.get("remote", {})
        return remote.get(b"x-forwarded-access-token", b"").decode("latin-1")
    sent: Sequence[bytes] = [value for name, value in scope["headers"] if name == b"authorization"]
    return bearer_of(sent) or ""
