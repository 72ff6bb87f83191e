"""Options of commands that serve: who may use them. Each stands for a key of the section `auth` and wins."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import click

_OPTIONS: Mapping[str, tuple[tuple[str, ...], str, str]] = {
    "oauthClientId": (("--oauth-client-id",), "ID", "Client id at the identity provider."),
    "oauthClientSecret": (("--oauth-client-secret",), "SECRET", "The secret that belongs to it."),
    "oauthAuthorizeUrl": (("--oauth-authorize-url",), "URL", "The identity provider."),
    "oauthTokenUrl": (("--oauth-token-url",), "URL", "Its token endpoint, if it does not tell."),
    "oauthJwksUrl": (("--oauth-jwks-url", "--oauth-jwksurl"), "URL", "Keys that tokens are signed with."),
    "oauthScopes": (("--oauth-scopes",), "SCOPE,…", "Scopes to ask the identity provider for."),
    "trustedIssuer": (("--trusted-issuer",), "URL", "Accept JSON Web Tokens of this issuer."),
    "trustedAudiences": (("--trusted-audiences",), "NAME,…", "Audiences such tokens are made for."),
    "jwks": (("--jwks",), "JSON", "The issuer's keys, instead of asking for them."),
    "encryptionKey": (("--encryption-key",), "TEXT", "Seals what is kept of tokens."),
    "apiKeyAuthWebhookUrl": (
        ("--api-key-auth-webhook-url", "--apikey-auth-webhook-url"),
        "URL",
        "Ask this service whether a bearer token is good.",
    ),
    "mcpServerId": (("--mcp-server-id", "--mcpserver-id"), "ID", "What that service is told we are."),
}


def auth_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets those that were given as one argument `auth`, by configuration key.

    The environment variable of each is NANOBOT_RUN_ and its name, which keeps secrets out of process lists.
    """

    @functools.wraps(command)
    def with_auth(*args: Any, **options: Any) -> Any:
        given = {key: options.pop(_parameter(key)) for key in _OPTIONS}
        return command(*args, auth={key: value for key, value in given.items() if value}, **options)

    wrapped: Callable[..., Any] = with_auth
    for key, (names, metavar, help) in reversed(list(_OPTIONS.items())):
        variables = [f"NANOBOT_RUN_{name.removeprefix('--').replace('-', '_').upper()}" for name in names]
        wrapped = click.option(*names, _parameter(key), metavar=metavar, envvar=variables, help=help)(wrapped)
    return wrapped


def _parameter(key: str) -> str:
    return f"auth_{key.lower()}"
