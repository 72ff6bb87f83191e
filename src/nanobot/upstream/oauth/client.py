"""The OAuth client of this installation: what every login and every token needs, put together once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from nanobot.addresses import AddressRules
from nanobot.config.model import McpServer, OAuthSettings
from nanobot.http import Http
from nanobot.store.grants import Grants
from nanobot.store.leases import Leases
from nanobot.upstream.oauth.addresses import check_page, rules_for
from nanobot.upstream.oauth.discovery import (
    AuthorizationServer,
    Resource,
    find_authorization_server,
    find_resource,
)
from nanobot.upstream.oauth.flow import Flows
from nanobot.upstream.oauth.grant import Client, Grant
from nanobot.upstream.oauth.registration import configured_client, document_client, register
from nanobot.upstream.secrecy import RecentSecrets
from nanobot.wire.challenge import Challenge

if TYPE_CHECKING:
    from nanobot.upstream.oauth.authorizer import Authorizer

CALLBACK_PATH = "/oauth/callback"


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """`redirect_uri`: where people come back to after a login; "" while nobody listens for them.

    `public_url` is our own address on the web, "" if we have none.
    """

    http: Http
    grants: Grants
    leases: Leases
    env: Mapping[str, str] = field(repr=False)
    redirect_uri: str = ""
    public_url: str = ""
    recent: RecentSecrets = field(default_factory=RecentSecrets)
    """Takes note of the tokens that servers are sent."""
    flows: Flows = field(default_factory=Flows)
    now: Callable[[], float] = time.time
    _known: WeakValueDictionary[tuple[str, str, str], Authorizer] = field(
        default_factory=lambda: WeakValueDictionary["tuple[str, str, str]", "Authorizer"](), init=False
    )

    def authorizer(self, server: McpServer, url: str, *, account: str = "") -> Authorizer:
        """The access of `account` to `server`, which is reached at `url`.

        Several connections of one account share it: they refresh and log in once and not each for itself.
        """
        from nanobot.upstream.oauth.authorizer import Authorizer

        key = server.name, url, account
        known = self._known.get(key)
        if known is None:
            rules = rules_for(server, url)
            settings = server.oauth or OAuthSettings()
            known = Authorizer(self, url, settings, account=account, rules=rules)
            self._known[key] = known
        return known

    async def prepare(
        self,
        url: str,
        settings: OAuthSettings,
        challenge: Challenge,
        *,
        scopes: tuple[str, ...] | None,
        known: Grant | None,
        rules: AddressRules,
    ) -> tuple[Grant, tuple[str, ...]]:
        """Who is asked for what: a grant without a new token, and the scopes to ask for.

        A registration in `known` is used again if it is with the same issuer and for our present address;
        so is its token. `rules` say where the server may send us and the person.
        Raises `AuthorizationFailed`.
        """
        http = self.http.guarded(rules)
        resource = await find_resource(http, url, challenge)
        server = await find_authorization_server(http, resource.issuer)
        await check_page(server.authorize_url, "its login page", rules)
        if known is not None and known.authorization_server.issuer != server.issuer:
            known = None  # what one issuer gave us is nothing to another
        client = await self._identity(http, server, settings, None if known is None else known.client)
        grant = Grant(
            resource=resource.id,
            authorization_server=server,
            client=client,
            token=None if known is None else known.token,
        )
        return grant, _scopes(scopes, settings, challenge, resource, server)

    async def _identity(
        self, http: Http, server: AuthorizationServer, settings: OAuthSettings, known: Client | None
    ) -> Client:
        client = configured_client(server, settings, self.env) or document_client(server, self.public_url)
        if client is not None:
            return client
        if (
            known is not None
            and known.origin == "registered"
            and known.redirect_uri == self.redirect_uri
            and not 0 < known.secret_expires_at <= self.now()
        ):
            return known
        return await register(http, server, self.redirect_uri)


def callback_uri(public_url: str, port: int | None) -> str:
    """Where a login comes back to: our public address, else this machine.

    `port` None: nobody listens in this process, and another one would not know the login; then "".
    """
    if port is None:
        return ""
    return (public_url or f"http://localhost:{port}") + CALLBACK_PATH


def _scopes(
    wanted: tuple[str, ...] | None,
    settings: OAuthSettings,
    challenge: Challenge,
    resource: Resource,
    server: AuthorizationServer,
) -> tuple[str, ...]:
    scopes = wanted or settings.scopes or challenge.scopes or resource.scopes
    if "offline_access" in server.scopes:
        scopes = (*scopes, "offline_access")
    return tuple(dict.fromkeys(scopes))
