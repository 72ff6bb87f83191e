"""Values that differ from caller to caller, and which servers are reached with them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nanobot.config.model import EnvVar, McpServer

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
