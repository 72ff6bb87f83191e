"""A caller's token exchanged for one that is meant for a server (RFC 8693): the first stays with us."""

from __future__ import annotations

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import anyio

from nanobot.http import Http, HttpError
from nanobot.upstream.oauth.failures import AuthorizationFailed
from nanobot.upstream.oauth.grant import Client
from nanobot.upstream.oauth.token_endpoint import RENEW_BEFORE_S, post_form, read_token
from nanobot.upstream.unverified import header_of

GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
JWT: Final = "urn:ietf:params:oauth:token-type:jwt"
API_KEY: Final = "urn:obot:token-type:api-key"
LASTS_S: Final = 300.0
"""Of a token whose server does not say how long it lasts."""
REFUSED_S: Final = 5.0
"""How long a refusal or failure is believed: the next request need not ask again at once."""
MOST_KEPT: Final = 10_000

log = logging.getLogger(__name__)

_Key = tuple[bytes, str]


@dataclass(slots=True, eq=False)
class _Kept:
    """What a subject has for a resource; `token` "" if it was refused or, with `failure`, not to be had."""

    lock: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True))
    token: str = field(default="", repr=False)
    failure: str = ""
    until: float = 0.0


class TokenExchange:
    """At one token endpoint. Tokens are kept in memory, by resource and hash of the subject's token."""

    def __init__(
        self,
        http: Http,
        url: str,
        *,
        client_id: str = "",
        client_secret: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._http = http
        self._url = url
        method = "client_secret_basic" if client_secret else "none"
        self._client = Client(id=client_id, secret=client_secret, auth_method=method)
        self._clock = clock
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()

    async def token(self, subject: str, resource: str) -> str:
        """What stands for the holder of `subject` at `resource`; "" if the endpoint does not exchange it.

        Those who ask for the same wait for one exchange. Raises `AuthorizationFailed` when the endpoint
        cannot be reached, fails, or answers with success and no token.
        """
        key = (hashlib.sha256(subject.encode()).digest(), resource)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept()
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        if self._clock() >= kept.until:
            async with kept.lock:
                if self._clock() >= kept.until:
                    await self._exchange(kept, subject, resource)
        if kept.failure:  # those who waited for the same are told the same
            raise AuthorizationFailed(kept.failure)
        return kept.token

    async def _exchange(self, kept: _Kept, subject: str, resource: str) -> None:
        form = {
            "grant_type": GRANT,
            "subject_token": subject,
            "subject_token_type": JWT if header_of(subject) else API_KEY,
            "requested_token_type": ACCESS_TOKEN,
            "resource": resource,
        }
        token, failure, lasts_s = "", "", REFUSED_S
        try:
            answer = await post_form(self._http, self._url, self._client, form)
            if answer.status == 200:
                now = self._clock()
                given = read_token(answer, now=now)
                whole_s = LASTS_S if given.expires_at is None else given.expires_at - now
                token, lasts_s = given.access, max(whole_s - RENEW_BEFORE_S, whole_s / 2)
            elif 400 <= answer.status < 500 and answer.status != 429:
                fields = {"status": answer.status, "resource": resource}
                log.info("a caller's token was not exchanged", extra=fields)
            else:
                failure = f"the token endpoint answered HTTP status {answer.status}"
        except HttpError as e:
            failure = f"the caller's token could not be exchanged: {e}"
        except AuthorizationFailed as e:
            failure = str(e)
        # All at once, and last: whoever sees `until` in the future believes the rest.
        kept.token, kept.failure, kept.until = token, failure, self._clock() + lasts_s
