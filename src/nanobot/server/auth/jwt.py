"""JSON Web Tokens of one trusted issuer, made for us."""

from __future__ import annotations

import base64
import binascii
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeGuard, cast

import msgspec

from nanobot.server.auth.jwks import KeySource
from nanobot.server.auth.principal import NotSignedIn, Principal, named_account

SCHEME: Final = "jwt"
ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "Ed25519",
    "EdDSA",
)
"""Only those that verify with a public key."""
LEEWAY_S: Final = 30.0
_MAX_TOKEN: Final = 16 * 1024


class TokenVerifier:
    """Checks signature, issuer, audience and times. `audiences`: one of them must be named."""

    def __init__(
        self, keys: KeySource, *, issuer: str, audiences: Collection[str], clock: Callable[[], float]
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audiences = frozenset(audiences)
        self._clock = clock

    async def claims(self, token: str) -> Mapping[str, Any]:
        """What the token says. Raises `NotSignedIn` with the reason it does not count, `AuthUnavailable`."""
        from joserfc import jwt
        from joserfc.errors import JoseError, SecurityWarning

        header = _header(token)
        if header is None or len(token) > _MAX_TOKEN:
            raise NotSignedIn("This is no token.")
        kid = header.get("kid", "")
        key = await self._keys.find(kid if isinstance(kid, str) else "")
        if key is None:
            raise NotSignedIn("The token is signed with an unknown key.")
        try:
            with warnings.catch_warnings():  # `EdDSA` has a newer name, which issuers do not use yet
                warnings.simplefilter("ignore", SecurityWarning)
                claims = jwt.decode(token, key, algorithms=list(ALGORITHMS)).claims
        except (JoseError, ValueError, TypeError) as e:
            raise NotSignedIn("The signature of the token is not good.") from e
        self._check(claims)
        return claims

    def _check(self, claims: Mapping[str, Any]) -> None:
        now = self._clock()
        expires, begins = claims.get("exp"), claims.get("nbf", 0)
        if not _is_time(expires) or now >= float(expires) + LEEWAY_S:
            raise NotSignedIn("The token has expired.")
        if not _is_time(begins) or now < float(begins) - LEEWAY_S:
            raise NotSignedIn("The token is not valid yet.")
        if claims.get("iss") != self._issuer:
            raise NotSignedIn("The token is of another issuer.")
        named = claims.get("aud")
        audiences = cast("list[Any]", named) if isinstance(named, list) else [named]
        if not any(isinstance(one, str) and one in self._audiences for one in audiences):
            raise NotSignedIn("The token was made for somebody else.")


class JsonWebTokens:
    """Knows everything that looks like a JSON Web Token as one, and takes what its verifier takes."""

    def __init__(self, verifier: TokenVerifier) -> None:
        self._verifier = verifier

    async def recognise(self, token: str) -> Principal | None:
        if _header(token) is None:
            return None
        claims = await self._verifier.claims(token)
        name, email = claims.get("name"), claims.get("email")
        return Principal(
            account=named_account(claims.get("sub")),
            scheme=SCHEME,
            name=name if isinstance(name, str) else "",
            email=email if isinstance(email, str) else "",
            expires_at=float(claims["exp"]) + LEEWAY_S,
        )


def _is_time(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _header(token: str) -> Mapping[str, Any] | None:
    """The header of a signed token; None if it is none."""
    head, _, rest = token.partition(".")
    if rest.count(".") != 1:
        return None
    try:
        raw = base64.urlsafe_b64decode(head + "=" * (-len(head) % 4))
        header = msgspec.json.decode(raw, type=dict[str, Any])
    except (binascii.Error, ValueError, RecursionError):
        return None
    return header if "alg" in header else None
