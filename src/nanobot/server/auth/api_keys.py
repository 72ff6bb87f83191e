"""Keys that an operator made and wrote down as hashes; each is an account."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from hmac import compare_digest

from nanobot.config.model import ApiKey
from nanobot.server.auth.principal import Principal

SCHEME = "api-key"


class ApiKeys:
    """Compares a token with every key, whichever it is, in the same time."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._keys = [(key.sha256, key.name) for key in keys]

    async def recognise(self, token: str) -> Principal | None:
        return await self.by_digest(hashlib.sha256(token.encode()).hexdigest())

    async def by_digest(self, digest: str) -> Principal | None:
        """The account of the key with this SHA-256, as long as it is configured."""
        owner: str | None = None
        for known, name in self._keys:
            if compare_digest(known, digest):
                owner = name
        return None if owner is None else Principal(account=owner, scheme=SCHEME, name=owner)
