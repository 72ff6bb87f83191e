"""Values that differ from caller to caller, and which servers are reached with them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from nanobot.config.model import EnvVar, McpServer
from nanobot.config.view import View

_REQUEST = re.compile(r"\$\{(http:[^{}:]*)")
"""A part of the request that is being answered, as in `${http:bearer-token}`."""


def value_of_the_caller(server: McpServer, variables: Mapping[str, EnvVar]) -> str | None:
    """The first reference in the definition to something each caller brings along; None if there is none.

    A connection made with such a value may serve no one but the caller it was made for. `variables` are the
    declared ones: those with `useBearerToken` may hold the caller's token.
    """
    personal = [name for name, variable in variables.items() if variable.use_bearer_token]
    for text in texts(server):
        if (found := _REQUEST.search(text)) is not None:
            return f"${{{found[1]}}}"
        for name in personal:
            if re.search(r"\$\{" + re.escape(name) + r"\s*[:}]", text, re.IGNORECASE):
                return f"${{{name}}}"
    return None


def personal_headers(server: McpServer, variables: Mapping[str, EnvVar]) -> frozenset[str]:
    """The headers that are made for each request: those with a part of it, or with a declared variable.

    A request gives its own value for a declared variable in `X-Nanobot-Env-<NAME>`. A connection that
    everybody shares takes nothing from anybody.
    """
    if server.sharing == "global":
        return frozenset()
    names = "|".join(re.escape(name) for name in variables)
    personal = re.compile(rf"\$\{{(?:http:|(?:{names})\s*[:}}])" if names else r"\$\{http:", re.IGNORECASE)
    return frozenset(
        name for name, value in server.headers.items() if personal.search(name) or personal.search(value)
    )


def check_personal(server: McpServer, view: View) -> None:
    """Parts of a request go into headers, which each request has of its own; all else is made once."""
    for key in ("url", "command", "args", "env", "cwd", "workdir", "image", "dockerfile", "sandbox", "oauth"):
        if not view.has(key):
            continue
        alone = replace(McpServer(name=""), **{key: getattr(server, key)})
        if (found := next((m for text in texts(alone) if (m := _REQUEST.search(text))), None)) is not None:
            view.place.key(key).error(
                "bad-value",
                view.origin(key),
                f"The server {server.name!r} cannot be made with ${{{found[1]}}}, a part of a request.",
                "write it into `headers`",
            )
    if server.personal_headers and server.transport == "sse":
        view.place.key("type").error(
            "bad-value",
            view.origin("type"),
            f"The headers of {server.name!r} differ from request to request; `type: sse` cannot carry them.",
            "leave `type` out",
        )


def texts(server: McpServer) -> Iterator[str]:
    """Every text of a definition in which `${NAME}` is replaced."""
    yield from (server.url, server.command, server.cwd, server.workdir, server.image, server.dockerfile)
    yield from server.args
    for mapping in (server.env, server.headers):
        for name, value in mapping.items():
            yield name
            yield value
    if server.sandbox is not None:
        yield from (*server.sandbox.readable, *server.sandbox.writable)
        yield from server.sandbox.extra_args
    if server.source is not None:
        source = server.source
        yield from (source.repo, source.commit, source.tag, source.branch, source.reference, source.sub_path)
    if server.oauth is not None:
        yield from (server.oauth.client_id, server.oauth.client_secret)
