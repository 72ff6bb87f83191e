"""The paths of our authorization server, each bounded per client address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from nanobot.server.auth.forms import read_form
from nanobot.server.auth.proxy.authorize import Authorization, is_our_resource
from nanobot.server.auth.proxy.clients import AUTH_METHODS, Clients
from nanobot.server.auth.proxy.errors import NO_STORE, OAuthError, answer_oauth_error
from nanobot.server.auth.proxy.grants import Grants
from nanobot.server.auth.public_url import PublicUrl
from nanobot.server.auth.rate_limit import RateLimit
from nanobot.server.exchange import Exchange
from nanobot.server.methods import Handler, Methods
from nanobot.server.problems import BadRequest

PER_MINUTE: Final = 60
MAX_REGISTRATION: Final = 64 * 1024


class OAuthEndpoints:
    def __init__(
        self,
        *,
        authorization: Authorization,
        clients: Clients,
        grants: Grants,
        public_url: PublicUrl,
        scopes: Sequence[str],
        clock: Callable[[], float],
    ) -> None:
        self._clients = clients
        self._grants = grants
        self._public_url = public_url
        self._scopes = scopes
        self._tries = RateLimit(PER_MINUTE, clock)
        self._paths: dict[str, Methods] = {
            "/authorize": {
                "GET": self._bounded(authorization.ask),
                "POST": self._bounded(authorization.decide),
            },
            "/callback": {"GET": self._bounded(authorization.come_back)},
            "/token": {"POST": self._bounded(self.token)},
            "/revoke": {"POST": self._bounded(self.revoke)},
            "/register": {"POST": self._bounded(self.register)},
            "/.well-known/oauth-authorization-server": {"GET": self.describe},
        }

    def find(self, path: str) -> Methods | None:
        return self._paths.get(path)

    async def describe(self, http: Exchange) -> None:
        """`GET /.well-known/oauth-authorization-server` (RFC 8414)."""
        public = self._public_url(http.scope)
        about: dict[str, Any] = {
            "issuer": public,
            "authorization_endpoint": f"{public}/authorize",
            "token_endpoint": f"{public}/token",
            "registration_endpoint": f"{public}/register",
            "revocation_endpoint": f"{public}/revoke",
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": list(AUTH_METHODS),
            "revocation_endpoint_auth_methods_supported": list(AUTH_METHODS),
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": True,
        }
        if self._scopes:
            about["scopes_supported"] = list(self._scopes)
        await http.answer_json(about)

    async def register(self, http: Exchange) -> None:
        """`POST /register` (RFC 7591)."""
        kind = http.header(b"content-type").split(b";", 1)[0].strip().lower()
        if kind != b"application/json":
            raise BadRequest(415, "content_type", "Send `Content-Type: application/json`.")
        told = await self._clients.register(await http.read(MAX_REGISTRATION))
        await http.answer_json(told, status=201, headers=[NO_STORE])

    async def token(self, http: Exchange) -> None:
        """`POST /token`: a code or a refresh token against tokens."""
        form = await read_form(http)
        client = await self._clients.authenticate(http, form)
        if not is_our_resource(form.get("resource", ""), self._public_url(http.scope)):
            raise OAuthError("invalid_target", "Tokens of this server are for this server only.")
        match form.get("grant_type"):
            case "authorization_code":
                if not form.get("code_verifier"):
                    raise OAuthError("invalid_request", "code_verifier is missing.")
                told = await self._grants.redeem(
                    form.get("code", ""),
                    client=client.id,
                    redirect_uri=form.get("redirect_uri", ""),
                    verifier=form["code_verifier"],
                )
                await self._clients.note_use(client)
            case "refresh_token":
                told = await self._grants.renew(form.get("refresh_token", ""), client=client.id)
            case _:
                raise OAuthError("unsupported_grant_type", "Use authorization_code or refresh_token.")
        await http.answer_json(told, headers=[NO_STORE])

    async def revoke(self, http: Exchange) -> None:
        """`POST /revoke` (RFC 7009): 200 also for a token that is not known."""
        form = await read_form(http)
        client = await self._clients.authenticate(http, form)
        await self._grants.revoke(form.get("token", ""), client=client.id)
        await http.answer(200, [(b"content-length", b"0"), (b"cache-control", b"no-store")])

    def _bounded(self, handler: Handler) -> Handler:
        async def bounded(http: Exchange) -> None:
            if wait_s := self._tries.wait_s(http.scope):
                retry = (b"retry-after", b"%d" % wait_s)
                raise BadRequest(429, "too_many_requests", f"Try again in {wait_s} s.", headers=[retry])
            self._tries.count(http.scope)
            try:
                await handler(http)
            except OAuthError as refused:
                await answer_oauth_error(http, refused)

        return bounded
