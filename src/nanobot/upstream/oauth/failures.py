"""How getting access to a server can fail. The request that needed it was never carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from nanobot.wire.client import ConnectionLost

if TYPE_CHECKING:
    from nanobot.upstream.oauth.flow import Flow


class AuthorizationFailed(ConnectionLost):
    """The authorization server cannot be used now, or not safely. What we have been granted is kept."""

    code = "oauth.failed"

    def __init__(self, reason: str) -> None:
        super().__init__(reason, maybe_sent=False)


class GrantRefused(AuthorizationFailed):
    """A code or a refresh token is good for nothing any more (`invalid_grant`)."""

    code = "oauth.invalid_grant"


class ClientRefused(AuthorizationFailed):
    """The authorization server does not know us, or not any more (`invalid_client`)."""

    code = "oauth.invalid_client"


class LoginNeeded(ConnectionLost):
    """Only a person can go on from here. `flow`: the login that waits for them; None: none can be begun here.

    `why`: "login" nothing we have is accepted · "scope" what we have does not cover this request.
    """

    code = "oauth.login"

    def __init__(self, flow: Flow | None, *, why: Literal["login", "scope"]) -> None:
        reason = "it wants a login" if why == "login" else "it wants more rights than were granted"
        super().__init__(reason, maybe_sent=False)
        self.flow = flow
        self.why: Literal["login", "scope"] = why
