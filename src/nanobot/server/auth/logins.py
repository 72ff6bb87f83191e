"""Browser sessions: a cookie that stands for somebody who signed in, and can be taken back here."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from nanobot.server.auth.principal import Principal
from nanobot.store.credentials import Credential, Credentials

COOKIE: Final = "nanobot_session"
IDLE_S: Final = 12 * 3600
"""A session ends when it was not used for so long."""
KEEP_S: Final = 30 * 24 * 3600
"""How long the browser keeps the cookie."""

_KIND: Final = "login"
_RENEW_S: Final = 600
_MAX_VALUE: Final = 128

Resume = Callable[[str], Awaitable[Principal | None]]
"""Who a proof stands for now: None once the key, secret or grant behind it is gone."""


class _Body(msgspec.Struct):
    scheme: str
    proof: str


_decode = msgspec.json.Decoder(_Body).decode


@dataclass(frozen=True, slots=True)
class Logins:
    """Sessions of all schemes. What a session rests on is looked at again at every request."""

    credentials: Credentials
    clock: Callable[[], float]
    schemes: Mapping[str, Resume]

    async def begin(self, scheme: str, proof: str, *, owner: str = "") -> str:
        """The cookie of a new session. `proof` is what `schemes[scheme]` resumes from; never the secret."""
        value = secrets.token_urlsafe(32)
        await self.credentials.put(
            Credential(
                kind=_KIND,
                id=_hash(value),
                owner=owner,
                body=msgspec.json.encode(_Body(scheme, proof)),
                expires=int(self.clock()) + IDLE_S,
            )
        )
        return value

    async def find(self, value: str) -> Principal | None:
        """Who the cookie stands for, if the session goes on; it then goes on for another `IDLE_S`."""
        login = await self._find(value)
        if login is None:
            return None
        body = _decode(login.body)
        resume = self.schemes.get(body.scheme)
        principal = await resume(body.proof) if resume else None
        now = int(self.clock())
        if principal is not None and login.expires - now < IDLE_S - _RENEW_S:
            await self.credentials.renew(_KIND, login.id, expires=now + IDLE_S)
        return principal

    async def end(self, value: str) -> None:
        """End the session, and with it everything that has the same owner."""
        if (login := await self._find(value)) is not None:
            await self.credentials.remove(_KIND, login.id)
            if login.owner:
                await self.credentials.remove_owned(login.owner)

    async def _find(self, value: str) -> Credential | None:
        if not value or len(value) > _MAX_VALUE:
            return None
        return await self.credentials.find(_KIND, _hash(value))


def _hash(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()
