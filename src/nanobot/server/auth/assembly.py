"""Which ways of signing in there are, put together once at the start."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import anyio
from starlette.types import ASGIApp

from nanobot.config.build_auth import is_safe
from nanobot.config.expand import expand
from nanobot.config.model import Config
from nanobot.errors import ConfigError, StoreError
from nanobot.http import Http
from nanobot.server.auth.api_keys import SCHEME as API_KEY
from nanobot.server.auth.api_keys import ApiKeys
from nanobot.server.auth.authenticator import OPEN_PATHS, Authenticator
from nanobot.server.auth.challenge import RESOURCE_PATH, Challenge
from nanobot.server.auth.forwarded import Forwarding
from nanobot.server.auth.jwks import FetchedKeys, GivenKeys
from nanobot.server.auth.jwt import JsonWebTokens, TokenVerifier
from nanobot.server.auth.launch_secret import SCHEME as LAUNCH_SECRET
from nanobot.server.auth.launch_secret import LaunchSecret, load_launch_secret
from nanobot.server.auth.login_page import BeginAtProvider, LoginPage
from nanobot.server.auth.logins import Logins, Resume
from nanobot.server.auth.principal import TokenScheme
from nanobot.server.auth.proxy.authorize import Authorization
from nanobot.server.auth.proxy.clients import Clients
from nanobot.server.auth.proxy.documents import Documents, documents_beside
from nanobot.server.auth.proxy.endpoints import OAuthEndpoints
from nanobot.server.auth.proxy.flows import Flows
from nanobot.server.auth.proxy.grants import SCHEME as OAUTH
from nanobot.server.auth.proxy.grants import Grants
from nanobot.server.auth.proxy.provider import Provider
from nanobot.server.auth.public_url import OverTls, PublicUrl, public_url_of
from nanobot.server.auth.webhook import Webhook
from nanobot.server.methods import Methods
from nanobot.server.security import Gate, Reach
from nanobot.store.credentials import Credentials

PURGE_S = 3600.0

log = logging.getLogger(__name__)


def is_protected(config: Config) -> bool:
    """Whether nobody can use this installation over HTTP without signing in."""
    return config.auth.is_on or config.server.require_secret


@dataclass(slots=True)
class Authentication:
    """The ways of signing in of one installation. Raises `ConfigError` for settings that cannot work."""

    config: Config
    http: Http
    credentials: Credentials
    clock: Callable[[], float] = time.time
    launch_secret: LaunchSecret | None = None
    _schemes: list[TokenScheme] = field(default_factory=list[TokenScheme])
    _resume: dict[str, Resume] = field(default_factory=dict[str, Resume])
    _issuers: list[str | None] = field(default_factory=list[str | None])
    _routes: list[Callable[[str], Methods | None]] = field(
        default_factory=list[Callable[[str], Methods | None]]
    )

    def guard(self, router: ASGIApp, *, open_paths: frozenset[str] = frozenset(), has_pages: bool) -> ASGIApp:
        """`router` behind everything that a request has to pass."""
        auth, server = self.config.auth, self.config.server
        public_url = public_url_of(server.public_url)
        logins = Logins(self.credentials, self.clock, self._resume)
        keys = self._add_api_keys()
        self._add_launch_secret()
        self._add_json_web_tokens()
        self._add_webhook()
        oauth = self._add_oauth(public_url, logins) if auth.oauth_client_id else None
        challenge = Challenge(
            public_url,
            issuers=self._issuers,
            scopes=auth.oauth_scopes,
            name=self.config.publish.name or "nanobot",
        )
        if self._resume:
            page = LoginPage(logins, keys=keys, secret=self.launch_secret, provider=oauth, clock=self.clock)
            self._routes.append(page.find)
        self._routes.append(lambda path: _resource_metadata(challenge, path))
        guarded: ASGIApp = Authenticator(
            router,
            schemes=self._schemes,
            logins=logins if self._resume else None,
            remote_headers=auth.remote_headers,
            routes=self._find_route,
            challenge=challenge,
            open_paths=OPEN_PATHS | open_paths,
            has_pages=has_pages,
        )
        guarded = Gate(
            guarded,
            server,
            reach=Reach(
                hosts=frozenset({urlsplit(server.public_url).netloc.encode()} - {b""}),
                any_address=True,
                pages_with_tokens=auth.takes_bearer_tokens,
            ),
        )
        if server.public_url.startswith("https://"):
            guarded = OverTls(guarded, server.public_url)
        return Forwarding(guarded, server.trusted_proxies) if server.trusted_proxies else guarded

    async def run(self) -> None:
        """Forget what has expired, now and then."""
        while True:
            try:
                await self.credentials.purge()
            except StoreError as e:
                log.warning("expired credentials could not be removed", extra={"reason": str(e)})
            await anyio.sleep(PURGE_S)

    def _find_route(self, path: str) -> Methods | None:
        return next((methods for find in self._routes if (methods := find(path)) is not None), None)

    def _add_api_keys(self) -> ApiKeys | None:
        if not self.config.auth.api_keys:
            return None
        keys = ApiKeys(self.config.auth.api_keys)
        self._schemes.append(keys)
        self._resume[API_KEY] = keys.by_digest
        return keys

    def _add_launch_secret(self) -> None:
        if self.config.server.require_secret:
            self.launch_secret = load_launch_secret(self.config.home)
            self._schemes.append(self.launch_secret)
            self._resume[LAUNCH_SECRET] = self.launch_secret.by_digest

    def _add_json_web_tokens(self) -> None:
        auth = self.config.auth
        if not auth.trusted_issuer:
            return
        issuer = self._text(auth.trusted_issuer)
        if auth.jwks:
            keys = GivenKeys(self._text(auth.jwks))
        else:
            url = self._url("oauthJwksUrl", auth.oauth_jwks_url)
            keys = FetchedKeys(self.http, url, self.clock, issuer=self._url("trustedIssuer", issuer))
        audiences = [self._text(one) for one in auth.trusted_audiences]
        verifier = TokenVerifier(keys, issuer=issuer, audiences=audiences, clock=self.clock)
        self._schemes.append(JsonWebTokens(verifier))
        self._issuers.append(issuer)

    def _add_webhook(self) -> None:
        auth = self.config.auth
        if auth.api_key_auth_webhook_url:
            url = self._url("apiKeyAuthWebhookUrl", auth.api_key_auth_webhook_url)
            self._schemes.append(Webhook(self.http, url, self._text(auth.mcp_server_id), self.clock))

    def _add_oauth(self, public_url: PublicUrl, logins: Logins) -> BeginAtProvider:
        """Be an authorization server; how a browser is sent to sign in."""
        auth = self.config.auth
        provider = Provider(
            self.http,
            url=self._url("oauthAuthorizeUrl", auth.oauth_authorize_url),
            token_url=self._url("oauthTokenUrl", auth.oauth_token_url),
            jwks_url=self._url("oauthJwksUrl", auth.oauth_jwks_url),
            client_id=self._text(auth.oauth_client_id),
            client_secret=self._text(auth.oauth_client_secret),
            scopes=auth.oauth_scopes,
            metadata=auth.oauth_authorization_server_metadata,
            clock=self.clock,
        )
        rules = documents_beside(self._url("oauthAuthorizeUrl", auth.oauth_authorize_url))
        clients = Clients(self.credentials, self.clock, Documents(self.http.guarded(rules)))
        grants = Grants(self.credentials, provider, self.clock)
        authorization = Authorization(
            clients=clients,
            flows=Flows(self.credentials, self.clock),
            grants=grants,
            provider=provider,
            logins=logins,
            public_url=public_url,
            scopes=auth.oauth_scopes,
        )
        endpoints = OAuthEndpoints(
            authorization=authorization,
            clients=clients,
            grants=grants,
            public_url=public_url,
            scopes=auth.oauth_scopes,
            clock=self.clock,
        )
        self._routes.append(endpoints.find)
        self._schemes.insert(0, grants)  # its tokens are known by their beginning
        self._resume[OAUTH] = grants.principal
        self._issuers.insert(0, None)
        return authorization.sign_in

    def _text(self, written: str) -> str:
        return expand(written, self.config.env).strip()

    def _url(self, key: str, written: str) -> str:
        """An address that secrets may be sent to. Raises `ConfigError`."""
        url = self._text(written)
        try:
            good = not url or is_safe(urlsplit(url))
        except ValueError:
            good = False
        if not good:
            raise ConfigError(f"`auth.{key}` is no https:// address (http:// is for this machine only).")
        return url


def _resource_metadata(challenge: Challenge, path: str) -> Methods | None:
    if path != RESOURCE_PATH and not path.startswith(RESOURCE_PATH + "/"):
        return None
    resource = path.removeprefix(RESOURCE_PATH).rstrip("/")
    return {"GET": lambda http: challenge.describe(http, resource)}
