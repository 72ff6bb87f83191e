"""The public keys of a token issuer: written down, or fetched and kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import anyio
import msgspec

from nanobot.config.build_auth import is_safe
from nanobot.errors import ConfigError
from nanobot.http import Http, HttpError
from nanobot.server.auth.principal import AuthUnavailable

KEEP_S: Final = 3600.0
REFETCH_S: Final = 30.0
"""An unknown key id makes us fetch again, but not more often than this: anybody can make up key ids."""
TIMEOUT_S: Final = 10.0
_MAX_DOCUMENT: Final = 256 * 1024

log = logging.getLogger(__name__)

Keys = Mapping[str, Any]
"""`joserfc` keys by key id."""


class KeySource(Protocol):
    async def find(self, kid: str) -> Any | None:
        """The key with this id; with "" the only one there is. Raises `AuthUnavailable`."""
        ...


class GivenKeys:
    """Keys from the configuration. Raises `ConfigError` for text that is no key set."""

    def __init__(self, text: str) -> None:
        try:
            self._keys = read_keys(text.encode())
        except ValueError as e:
            raise ConfigError("`auth.jwks` is no JSON Web Key Set with public keys in it.") from e

    async def find(self, kid: str) -> Any | None:
        return _pick(self._keys, kid)


class FetchedKeys:
    """Keys behind a URL, which may have to be found out first."""

    def __init__(self, http: Http, url: str, clock: Callable[[], float], *, issuer: str = "") -> None:
        """Without `url`, the metadata of `issuer` tells it."""
        self._http = http
        self._url = url
        self._issuer = issuer
        self._clock = clock
        self._keys: Keys = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._fetching = anyio.Lock()

    async def find(self, kid: str) -> Any | None:
        key = _pick(self._keys, kid)
        if key is not None and self._is_fresh():
            return key
        async with self._fetching:
            key = _pick(self._keys, kid)
            if (key is None or not self._is_fresh()) and self._may_try():
                await self._fetch()
                key = _pick(self._keys, kid)
        if key is None and self._fetched_at is None:
            raise AuthUnavailable("The keys of the token issuer cannot be fetched now.")
        return key

    def _is_fresh(self) -> bool:
        return self._fetched_at is not None and self._clock() - self._fetched_at < KEEP_S

    def _may_try(self) -> bool:
        return self._tried_at is None or self._clock() - self._tried_at >= REFETCH_S

    async def _fetch(self) -> None:
        """Keys that are known stay known while the issuer cannot be reached."""
        self._tried_at = self._clock()
        try:
            self._url = self._url or await find_jwks_uri(self._http, self._issuer)
            answer = await self._http.request("GET", self._url, timeout_s=TIMEOUT_S, max_bytes=_MAX_DOCUMENT)
            if answer.status != 200:
                raise ValueError(f"status {answer.status}")
            self._keys = read_keys(answer.body)
            self._fetched_at = self._clock()
        except (HttpError, ValueError) as e:
            log.warning("the keys of the token issuer cannot be fetched", extra={"reason": str(e)})


async def find_jwks_uri(http: Http, issuer: str) -> str:
    """Where an issuer's metadata says its keys are. Raises `ValueError` and `HttpError`."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    for url in (
        f"{origin}{path}/.well-known/openid-configuration",
        f"{origin}/.well-known/oauth-authorization-server{path}",
    ):
        answer = await http.request("GET", url, timeout_s=TIMEOUT_S, max_bytes=_MAX_DOCUMENT)
        if answer.status != 200:
            continue
        about = msgspec.json.decode(answer.body, type=dict[str, Any])
        where = about.get("jwks_uri")
        if about.get("issuer") != issuer:
            raise ValueError("the metadata is that of another issuer")
        if isinstance(where, str) and is_safe(urlsplit(where)):
            return where
    raise ValueError("the issuer's metadata names no keys")


def read_keys(document: bytes) -> Keys:
    """The public keys of a key set that may verify signatures. Raises `ValueError` if there is none."""
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    entries = msgspec.json.decode(document, type=dict[str, Any]).get("keys")
    if not isinstance(entries, list):
        raise ValueError("no key set")
    keys: dict[str, Any] = {}
    for entry in entries:  # pyright: ignore[reportUnknownVariableType]
        # A shared secret in a public document would let everybody sign.
        if isinstance(entry, dict) and entry.get("kty") != "oct" and entry.get("use", "sig") == "sig":  # pyright: ignore[reportUnknownMemberType]
            try:
                keys[str(entry.get("kid", ""))] = import_key(entry)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
            except (JoseError, ValueError, TypeError) as e:
                log.info("a key of the token issuer is not usable", extra={"reason": type(e).__name__})
    if not keys:
        raise ValueError("no usable key")
    return keys


def _pick(keys: Keys, kid: str) -> Any | None:
    if kid:
        return keys.get(kid)
    return next(iter(keys.values())) if len(keys) == 1 else None
