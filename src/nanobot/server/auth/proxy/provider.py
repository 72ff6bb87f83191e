"""The identity provider behind us: where its endpoints are, and what is asked of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import anyio
import msgspec

from nanobot.config.build_auth import is_safe
from nanobot.http import Http, HttpAnswer, HttpError
from nanobot.server.auth.jwks import FetchedKeys
from nanobot.server.auth.jwt import TokenVerifier
from nanobot.server.auth.principal import AuthUnavailable, NotSignedIn, named_account

TIMEOUT_S: Final = 10.0
_MAX_ANSWER: Final = 256 * 1024
_ABOUT_US: Final = frozenset(
    "invalid_client invalid_request invalid_scope invalid_target unauthorized_client "
    "unsupported_grant_type".split()
)
"""What a token endpoint says about the client that asks, and not about the person."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Addresses of the provider; `issuer`, `userinfo` and `jwks` are "" if it does not tell."""

    authorization: str
    token: str
    issuer: str = ""
    userinfo: str = ""
    jwks: str = ""


class ProviderTokens(msgspec.Struct, frozen=True):
    """What the provider gave for a person. `expires_at`: seconds since the epoch, None for never.

    `lasts_s`: how long the access token was good for when it was given, None if that is not known.
    """

    access: str
    refresh: str = ""
    id_token: str = ""
    expires_at: float | None = None
    lasts_s: float | None = None


class User(msgspec.Struct, frozen=True):
    account: str
    name: str = ""
    email: str = ""


class _Refusal(msgspec.Struct):
    error: str


class ProviderRefused(NotSignedIn):
    """The provider does not (or no longer) vouch for this person."""


class Provider:
    """A confidential client of the provider; requests carry PKCE as well."""

    def __init__(
        self,
        http: Http,
        *,
        url: str,
        token_url: str,
        jwks_url: str,
        client_id: str,
        client_secret: str,
        scopes: Sequence[str],
        metadata: Mapping[str, Any],
        clock: Callable[[], float],
    ) -> None:
        """`url` is the provider's address or that of its authorization page; `metadata` comes before what
        it tells itself."""
        self._http = http
        self._url = url.rstrip("/")
        self._given = {key: value for key, value in metadata.items() if isinstance(value, str)}
        self._given |= {"token_endpoint": token_url} if token_url else {}
        self._given |= {"jwks_uri": jwks_url} if jwks_url else {}
        self._client_id = client_id
        self._client_secret = client_secret
        self._scopes = scopes
        self._clock = clock
        self._found: Endpoints | None = None
        self._finding = anyio.Lock()

    async def authorization_url(self, *, redirect_uri: str, state: str, challenge: str, nonce: str) -> str:
        """Where a browser signs in. Raises `AuthUnavailable`."""
        page = (await self.endpoints()).authorization
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        if self._scopes:
            query["scope"] = " ".join(self._scopes)
        if "openid" in self._scopes:
            query["nonce"] = nonce
        return f"{page}{'&' if '?' in page else '?'}{urlencode(query)}"

    async def redeem(self, code: str, *, redirect_uri: str, verifier: str) -> ProviderTokens:
        """Tokens for a code. Raises `ProviderRefused`, `NotSignedIn` and `AuthUnavailable`."""
        form = {"code": code, "redirect_uri": redirect_uri, "code_verifier": verifier}
        return await self._tokens({"grant_type": "authorization_code", **form})

    async def refresh(self, tokens: ProviderTokens) -> ProviderTokens:
        """Newer tokens in place of `tokens`.

        Raises `ProviderRefused` if `tokens` have ended for good, else `NotSignedIn` and `AuthUnavailable`.
        """
        newer = await self._tokens({"grant_type": "refresh_token", "refresh_token": tokens.refresh})
        return newer if newer.refresh else msgspec.structs.replace(newer, refresh=tokens.refresh)

    async def user(self, tokens: ProviderTokens, *, nonce: str) -> User:
        """Whose tokens these are. Raises `ProviderRefused` and `AuthUnavailable`."""
        ends = await self.endpoints()
        if ends.userinfo:
            headers = {"Authorization": f"Bearer {tokens.access}", "Accept": "application/json"}
            about = _object(await self._ask("GET", ends.userinfo, headers, None))
        elif tokens.id_token and ends.issuer and ends.jwks:
            keys = FetchedKeys(self._http, ends.jwks, self._clock)
            verifier = TokenVerifier(keys, issuer=ends.issuer, audiences=[self._client_id], clock=self._clock)
            about = await verifier.claims(tokens.id_token)
            if about.get("nonce") != nonce:
                raise ProviderRefused("The identity provider answered another request.")
        else:
            raise ProviderRefused("The identity provider does not say who signed in.")
        return _user(about)

    async def endpoints(self) -> Endpoints:
        """Raises `AuthUnavailable`."""
        async with self._finding:
            if self._found is None:
                told = self._given
                if not {"authorization_endpoint", "token_endpoint"} <= told.keys():
                    told = {**await self._discover(), **told}
                self._found = self._endpoints(told)
        return self._found

    def _endpoints(self, told: Mapping[str, str]) -> Endpoints:
        base, page = self._base()
        ends = Endpoints(
            authorization=told.get("authorization_endpoint") or page or f"{base}/authorize",
            token=told.get("token_endpoint") or f"{base}/token",
            issuer=told.get("issuer", ""),
            userinfo=told.get("userinfo_endpoint", ""),
            jwks=told.get("jwks_uri", ""),
        )
        for url in (ends.authorization, ends.token, ends.userinfo, ends.jwks):
            if url and not is_safe(urlsplit(url)):
                raise AuthUnavailable("The identity provider names an endpoint that is not https.")
        return ends

    def _base(self) -> tuple[str, str]:
        """The provider's address, and that of its authorization page if it is what was configured."""
        head, slash, last = self._url.rpartition("/")
        is_page = bool(slash) and last in ("authorize", "auth", "authorization")
        return (head, self._url) if is_page else (self._url, "")

    async def _discover(self) -> dict[str, str]:
        """The provider's metadata; empty if it has none."""
        base, _ = self._base()
        parts = urlsplit(base)
        origin, path = f"{parts.scheme}://{parts.netloc}", parts.path
        for url in (
            f"{base}/.well-known/openid-configuration",
            f"{origin}/.well-known/oauth-authorization-server{path}",
            f"{origin}/.well-known/openid-configuration{path}",
        ):
            answer = await self._ask("GET", url, {"Accept": "application/json"}, None)
            if answer.status == 200:
                return {key: value for key, value in _object(answer).items() if isinstance(value, str)}
            if answer.status >= 500:
                raise AuthUnavailable(f"The identity provider answered {answer.status}.")
        return {}

    async def _tokens(self, form: Mapping[str, str]) -> ProviderTokens:
        ends = await self.endpoints()
        proof = {"client_id": self._client_id, "client_secret": self._client_secret}
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        answer = await self._ask("POST", ends.token, headers, urlencode({**form, **proof}).encode())
        _check_grant(answer)
        told = _object(answer)
        access, refresh, id_token = (told.get(f"{name}_token") for name in ("access", "refresh", "id"))
        if not isinstance(access, str) or not access:
            raise NotSignedIn("The identity provider gave no token.")
        lasts = told.get("expires_in")
        try:
            lasts_s = None if lasts is None else float(lasts)
        except (TypeError, ValueError):
            lasts_s = None
        return ProviderTokens(
            access=access,
            refresh=refresh if isinstance(refresh, str) else "",
            id_token=id_token if isinstance(id_token, str) else "",
            expires_at=None if lasts_s is None else self._clock() + lasts_s,
            lasts_s=lasts_s,
        )

    async def _ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        try:
            return await self._http.request(
                method, url, headers=headers, body=body, timeout_s=TIMEOUT_S, max_bytes=_MAX_ANSWER
            )
        except HttpError as e:
            raise AuthUnavailable("The identity provider cannot be reached.") from e


def _check_grant(answer: HttpAnswer) -> None:
    """Tell a person who is refused from a provider that does not want us, or that has trouble of its own.

    Raises `ProviderRefused` for `invalid_grant` alone (RFC 6749, 5.2), `AuthUnavailable` for other errors:
    a client secret that is wrong for a moment says nothing about the person.
    """
    if answer.status == 200 or answer.status >= 500 or answer.status == 429:
        return
    try:
        error = msgspec.json.decode(answer.body, type=_Refusal).error
    except (msgspec.DecodeError, RecursionError):
        error = ""
    if error == "invalid_grant":
        raise ProviderRefused("The identity provider does not vouch for the person.")
    known = error if error in _ABOUT_US else "no reason"
    log.error(
        "the identity provider refuses requests of this server for tokens",
        extra={"status": answer.status, "error": known},
    )
    raise AuthUnavailable(f"The identity provider refuses this server ({answer.status}, {known}).")


def _object(answer: HttpAnswer) -> dict[str, Any]:
    """The JSON object in a good answer. Raises `ProviderRefused` (4xx) and `AuthUnavailable`."""
    if answer.status >= 500 or answer.status == 429:
        raise AuthUnavailable(f"The identity provider answered {answer.status}.")
    if answer.status != 200:
        raise ProviderRefused(f"The identity provider answered {answer.status}.")
    try:
        return msgspec.json.decode(answer.body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as e:
        raise AuthUnavailable("The identity provider's answer cannot be read.") from e


def _user(about: Mapping[str, Any]) -> User:
    for key in ("id", "sub", "login", "email"):
        value = about.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if isinstance(value, str) and value.strip():
            named = [about.get(name) for name in ("name", "email")]
            name, email = (one if isinstance(one, str) else "" for one in named)
            return User(account=named_account(value), name=name, email=email)
    raise ProviderRefused("The identity provider does not say who signed in.")
