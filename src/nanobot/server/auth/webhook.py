"""Asking another service whether an API key is good, and remembering its answer for a moment."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

import anyio
import msgspec

from nanobot.http import Http, HttpError
from nanobot.server.auth.principal import AuthUnavailable, NotSignedIn, Principal, named_account

SCHEME: Final = "webhook"
TIMEOUT_S: Final = 10.0
GOOD_S: Final = 60.0
BAD_S: Final = 5.0
MOST_REMEMBERED: Final = 10_000
_MAX_ANSWER: Final = 64 * 1024


class _Answer(msgspec.Struct):
    allowed: bool
    sub: str = ""
    reason: str = ""
    name: str = ""
    preferred_username: str = ""
    email: str = ""


_decode = msgspec.json.Decoder(_Answer).decode


class Webhook:
    """`url` is asked about every token that nobody else knows. Verdicts are kept by the token's hash."""

    def __init__(self, http: Http, url: str, server_id: str, clock: Callable[[], float]) -> None:
        self._http = http
        self._url = url
        self._question = msgspec.json.encode({"mcpId": server_id})
        self._clock = clock
        self._verdicts: OrderedDict[bytes, tuple[float, Principal | NotSignedIn]] = OrderedDict()
        self._asking: WeakValueDictionary[bytes, anyio.Lock] = WeakValueDictionary()

    async def recognise(self, token: str) -> Principal | None:
        digest = hashlib.sha256(token.encode()).digest()
        verdict = self._remembered(digest)
        if verdict is None:
            lock = self._asking.setdefault(digest, anyio.Lock())
            async with lock:  # those who ask about the same key wait for one answer
                verdict = self._remembered(digest)
                if verdict is None:
                    verdict = await self._ask(token)
                    self._remember(digest, verdict)
        if isinstance(verdict, NotSignedIn):
            raise NotSignedIn(str(verdict))
        return verdict

    async def _ask(self, token: str) -> Principal | NotSignedIn:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            answer = await self._http.request(
                "POST",
                self._url,
                headers=headers,
                body=self._question,
                timeout_s=TIMEOUT_S,
                max_bytes=_MAX_ANSWER,
            )
        except HttpError as e:
            raise AuthUnavailable("The service that knows API keys cannot be reached.") from e
        if answer.status in (401, 403):
            return NotSignedIn("The API key is not accepted.")
        if answer.status != 200:
            raise AuthUnavailable(f"The service that knows API keys answered {answer.status}.")
        try:
            said = _decode(answer.body)
        except (msgspec.DecodeError, RecursionError) as e:
            raise AuthUnavailable("The service that knows API keys gave no answer that can be read.") from e
        if not said.allowed:
            return NotSignedIn(said.reason[:200] or "The API key is not accepted.")
        try:
            account = named_account(said.sub)
        except NotSignedIn as nameless:
            return nameless
        return Principal(
            account=account, scheme=SCHEME, name=said.name or said.preferred_username, email=said.email
        )

    def _remembered(self, digest: bytes) -> Principal | NotSignedIn | None:
        until, verdict = self._verdicts.get(digest, (0.0, None))
        return verdict if self._clock() < until else None

    def _remember(self, digest: bytes, verdict: Principal | NotSignedIn) -> None:
        keep_s = BAD_S if isinstance(verdict, NotSignedIn) else GOOD_S
        self._verdicts[digest] = (self._clock() + keep_s, verdict)
        self._verdicts.move_to_end(digest)
        if len(self._verdicts) > MOST_REMEMBERED:
            self._verdicts.popitem(last=False)
