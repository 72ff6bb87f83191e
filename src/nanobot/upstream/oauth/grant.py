"""What an authorization server gave us for one MCP server, in one record: who we are there, our tokens."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from nanobot.store.rows import GrantRow
from nanobot.upstream.oauth.discovery import AuthorizationServer

AuthMethod = Literal["none", "client_secret_post", "client_secret_basic"]
Origin = Literal["configured", "document", "registered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Who we are to an authorization server. `origin`: how we came to be that."""

    id: str
    secret: str = field(default="", repr=False)
    auth_method: AuthMethod = "none"
    origin: Origin = "registered"
    redirect_uri: str = ""
    """Of a registered client: the only one it may use."""
    secret_expires_at: float = 0.0
    """Seconds since the epoch; 0: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """`expires_at`, and `renew_at` for getting the next one: seconds since the epoch, None: not told."""

    access: str = field(repr=False)
    refresh: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ()
    expires_at: float | None = None
    renew_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """`resource` is what the token is for; `token` None: we are registered, nobody has logged in."""

    resource: str
    authorization_server: AuthorizationServer
    client: Client
    token: Token | None = None

    def with_token(self, token: Token | None) -> Grant:
        return replace(self, token=token)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Grant).decode


def to_row(grant: Grant, *, server: str, account: str) -> GrantRow:
    return GrantRow(grant.authorization_server.issuer, grant.resource, account, server, _encode(grant))


def from_row(row: GrantRow) -> Grant | None:
    """The grant in `row`; None if another version of the program wrote something we cannot use."""
    try:
        return _decode(row.content)
    except msgspec.DecodeError:
        return None
