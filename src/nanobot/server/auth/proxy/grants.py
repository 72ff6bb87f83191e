"""What a person granted a client: one-use codes, short-lived access tokens, refresh tokens that rotate.

Everything that was given out belongs to a grant and goes with it. Whoever presents a spent code or refresh
token has it from somewhere it leaked to, so the whole grant is taken back then.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import secrets
from collections.abc import Callable
from hmac import compare_digest
from typing import Any, Final
from weakref import WeakValueDictionary

import anyio
import msgspec

from nanobot.server.auth.principal import AuthUnavailable, NotSignedIn, Principal
from nanobot.server.auth.proxy.clients import hash_of
from nanobot.server.auth.proxy.errors import OAuthError
from nanobot.server.auth.proxy.provider import Provider, ProviderRefused, ProviderTokens, User
from nanobot.store.credentials import Credential, Credentials

SCHEME: Final = "oauth"
CODE_S: Final = 600
ACCESS_S: Final = 3600
GRANT_S: Final = 30 * 24 * 3600
REFRESH_EARLY_S: Final = 300.0
"""How long before its end a token of the provider is renewed; a short-lived one at half of its life."""

_ACCESS, _REFRESH, _CODE, _GRANT = "oauth-access", "oauth-refresh", "oauth-code", "oauth-grant"
_PREFIX: Final = "nbt_"

log = logging.getLogger(__name__)


class _Grant(msgspec.Struct, frozen=True):
    client: str
    user: User
    provider: ProviderTokens
    scope: str = ""


class _Code(msgspec.Struct, frozen=True):
    client: str
    redirect_uri: str
    challenge: str


_read_grant = msgspec.json.Decoder(_Grant).decode
_read_code = msgspec.json.Decoder(_Code).decode


class Grants:
    def __init__(self, credentials: Credentials, provider: Provider, clock: Callable[[], float]) -> None:
        self._credentials = credentials
        self._provider = provider
        self._clock = clock
        self._refreshing: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    async def create(self, client: str, user: User, tokens: ProviderTokens, scope: str) -> str:
        """The id of a new grant. `client` "" is our own page; others have to redeem a code in time."""
        id = secrets.token_hex(16)
        grant = _Grant(client=client, user=user, provider=tokens, scope=scope)
        lasts_s = CODE_S if client else GRANT_S
        await self._put(_GRANT, id, lasts_s, owner=id, body=msgspec.json.encode(grant))
        return id

    async def new_code(self, grant: str, *, client: str, redirect_uri: str, challenge: str) -> str:
        """A code for the client to redeem once, with the verifier that belongs to `challenge`."""
        code = f"nbx_{secrets.token_urlsafe(32)}"
        body = msgspec.json.encode(_Code(client, redirect_uri, challenge))
        await self._put(_CODE, hash_of(code), CODE_S, owner=grant, body=body)
        return code

    async def redeem(self, code: str, *, client: str, redirect_uri: str, verifier: str) -> dict[str, Any]:
        """Tokens for a code. Raises `OAuthError`."""
        found = await self._credentials.find(_CODE, hash_of(code))
        if found is None or _read_code(found.body).client != client:
            raise OAuthError("invalid_grant", "The code is not known.")
        spent = await self._credentials.spend(_CODE, found.id)
        if spent is None or spent.used:
            await self._take_back(found.owner, "a code was used twice")
            raise OAuthError("invalid_grant", "The code has been used.")
        wanted = _read_code(found.body)
        if wanted.redirect_uri != redirect_uri:
            raise OAuthError("invalid_grant", "redirect_uri is not the one the code was asked for with.")
        if not compare_digest(challenge_of(verifier), wanted.challenge):
            raise OAuthError("invalid_grant", "code_verifier does not belong to the code.")
        await self._credentials.renew(_GRANT, found.owner, expires=int(self._clock()) + GRANT_S)
        return await self._new_tokens(found.owner)

    async def renew(self, refresh: str, *, client: str) -> dict[str, Any]:
        """New tokens for a refresh token, which is spent by that. Raises `OAuthError`."""
        found = await self._credentials.find(_REFRESH, hash_of(refresh))
        grant = await self._find(found.owner) if found else None
        if found is None or grant is None or grant.client != client:
            raise OAuthError("invalid_grant", "The refresh token is not known.")
        spent = await self._credentials.spend(_REFRESH, found.id)
        if spent is None or spent.used:
            await self._take_back(found.owner, "a refresh token was used twice")
            raise OAuthError("invalid_grant", "The refresh token has been used.")
        return await self._new_tokens(found.owner)

    async def revoke(self, token: str, *, client: str) -> None:
        """Take a token of `client` back, with a refresh token the whole grant. Raises `OAuthError`."""
        for kind in (_REFRESH, _ACCESS):
            found = await self._credentials.find(kind, hash_of(token))
            if found is None:
                continue
            grant = await self._find(found.owner)
            if grant is not None and grant.client != client:
                raise OAuthError("unauthorized_client", "The token belongs to another client.")
            if kind == _REFRESH:
                await self._credentials.remove_owned(found.owner)
            else:
                await self._credentials.remove(kind, found.id)
            return

    async def recognise(self, token: str) -> Principal | None:
        """Who an access token of ours stands for (a `TokenScheme`)."""
        if not token.startswith(_PREFIX):
            return None
        found = await self._credentials.find(_ACCESS, hash_of(token))
        principal = None if found is None else await self.principal(found.owner)
        if found is None or principal is None:
            raise NotSignedIn("The token is not known, or has expired.")
        return principal

    async def principal(self, id: str) -> Principal | None:
        """Who a grant stands for, if the provider still vouches for them.

        Raises `NotSignedIn` and `AuthUnavailable` if it does not say, which ends nothing.
        """
        grant = await self._find(id)
        if grant is not None and self._is_due(grant.provider):
            grant = await self._refreshed(id)
        if grant is None:
            return None
        user = grant.user
        token = grant.provider.access
        return Principal(account=user.account, scheme=SCHEME, name=user.name, email=user.email, token=token)

    def _is_due(self, tokens: ProviderTokens) -> bool:
        if tokens.expires_at is None or not tokens.refresh:
            return False
        early_s = REFRESH_EARLY_S if tokens.lasts_s is None else min(REFRESH_EARLY_S, tokens.lasts_s / 2)
        return tokens.expires_at - self._clock() <= early_s

    async def _refreshed(self, id: str) -> _Grant | None:
        """The grant with newer tokens of the provider; None, and gone, if it ended them."""
        lock = self._refreshing.setdefault(id, anyio.Lock())
        async with lock:  # a provider may take a second use of one refresh token for theft
            grant = await self._find(id)
            if grant is None or not self._is_due(grant.provider):
                return grant
            try:
                newer = await self._provider.refresh(grant.provider)
            except ProviderRefused:
                await self._take_back(id, "the identity provider does not vouch for the person any more")
                return None
            except (NotSignedIn, AuthUnavailable):
                expires_at = grant.provider.expires_at
                if expires_at is not None and expires_at > self._clock():
                    return grant  # good for a few minutes yet
                raise
            grant = msgspec.structs.replace(grant, provider=newer)
            with anyio.CancelScope(shield=True):  # the old refresh token may be dead already
                await self._credentials.rewrite(_GRANT, id, msgspec.json.encode(grant))
            return grant

    async def _new_tokens(self, id: str) -> dict[str, Any]:
        grant = await self._credentials.find(_GRANT, id)
        if grant is None:
            raise OAuthError("invalid_grant", "The grant has ended.")
        access, refresh = f"{_PREFIX}{secrets.token_urlsafe(32)}", f"nbr_{secrets.token_urlsafe(32)}"
        left_s = grant.expires - int(self._clock())
        lasts_s = min(ACCESS_S, left_s)
        await self._credentials.put(
            self._credential(_ACCESS, hash_of(access), lasts_s, owner=id),
            self._credential(_REFRESH, hash_of(refresh), left_s, owner=id),
        )
        told = {"access_token": access, "token_type": "Bearer", "expires_in": lasts_s}
        scope = _read_grant(grant.body).scope
        return told | {"refresh_token": refresh} | ({"scope": scope} if scope else {})

    async def _take_back(self, id: str, reason: str) -> None:
        log.warning("a grant was taken back", extra={"reason": reason})
        await self._credentials.remove_owned(id)

    async def _find(self, id: str) -> _Grant | None:
        found = await self._credentials.find(_GRANT, id)
        return None if found is None else _read_grant(found.body)

    async def _put(self, kind: str, id: str, lasts_s: int, *, owner: str, body: bytes) -> None:
        await self._credentials.put(self._credential(kind, id, lasts_s, owner=owner, body=body))

    def _credential(self, kind: str, id: str, lasts_s: int, *, owner: str, body: bytes = b"") -> Credential:
        return Credential(kind=kind, id=id, owner=owner, body=body, expires=int(self._clock()) + lasts_s)


def challenge_of(verifier: str) -> str:
    """The S256 challenge that belongs to a verifier (RFC 7636)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
