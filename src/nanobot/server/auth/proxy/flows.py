"""Sign-ins under way: from the first request over consent to the identity provider and back.

Each step is a record of its own that can be used once, and belongs to the browser that began it: a link that
somebody else made leads nowhere, whatever it carries.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from hmac import compare_digest
from typing import Final, Literal

import msgspec

from nanobot.server.auth.cookies import read_cookie, write_cookie
from nanobot.server.auth.proxy.clients import hash_of
from nanobot.server.exchange import Exchange
from nanobot.server.problems import Header
from nanobot.store.credentials import Credential, Credentials

COOKIE: Final = "nanobot_flow"
LASTS_S: Final = 900

Step = Literal["oauth-consent", "oauth-login"]


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """`client` "" is our own page, which then goes to the path `next`. `verifier` and `nonce` are ours
    towards the provider, `challenge` is the client's towards us."""

    client: str = ""
    redirect_uri: str = ""
    state: str = ""
    challenge: str = ""
    scope: str = ""
    next: str = ""
    verifier: str = ""
    nonce: str = ""
    browser: str = ""


_read = msgspec.json.Decoder(Flow).decode


class Flows:
    def __init__(self, credentials: Credentials, clock: Callable[[], float]) -> None:
        self._credentials = credentials
        self._clock = clock

    async def begin(self, http: Exchange, step: Step, flow: Flow) -> tuple[str, Header]:
        """The secret that continues the flow, and the cookie that binds it to this browser."""
        browser = read_cookie(http.scope, COOKIE)
        if not 20 <= len(browser) <= 100:
            browser = secrets.token_urlsafe(32)
        secret = secrets.token_urlsafe(32)
        flow = msgspec.structs.replace(flow, browser=hash_of(browser))
        await self._credentials.put(
            Credential(
                kind=step,
                id=hash_of(secret),
                body=msgspec.json.encode(flow),
                expires=int(self._clock()) + LASTS_S,
            )
        )
        cookie = write_cookie(http.scope, COOKIE, browser, max_age_s=LASTS_S, same_site="Lax")
        return secret, cookie

    async def take(self, http: Exchange, step: Step, secret: str) -> Flow | None:
        """The flow that this browser began and that nobody has continued yet; it cannot be taken again."""
        found = await self._credentials.find(step, hash_of(secret)) if secret else None
        if found is None:
            return None
        flow = _read(found.body)
        if not compare_digest(flow.browser, hash_of(read_cookie(http.scope, COOKIE))):
            return None
        spent = await self._credentials.spend(step, found.id)
        return None if spent is None or spent.used else flow
