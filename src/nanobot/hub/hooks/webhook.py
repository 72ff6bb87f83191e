"""A web address as a hook: the payload is posted there, signed, and the answer is what comes back."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, Final
from urllib.parse import quote

import msgspec

from nanobot.http import Http, HttpError
from nanobot.hub.hooks.hook import HookFailed, JsonObject
from nanobot.wire.call import Call

MAX_ANSWER: Final = 1024 * 1024


class WebHook:
    """Satisfies `Hook`. With `secret` ("": none) the body is signed with HMAC-SHA256."""

    def __init__(self, url: str, http: Http, *, secret: str, timeout_s: float) -> None:
        self._url = url
        self._http = http
        self._secret = secret
        self._timeout_s = timeout_s

    async def run(self, event: str, payload: JsonObject, call: Call) -> Any:
        del call
        body = msgspec.json.encode(payload)
        # A method is a client's text: what could not stand in a header is written as in a URL.
        headers = {"Content-Type": "application/json", "X-Nanobot-Hook": quote(event, safe="/*$+.:")}
        if self._secret:
            headers["X-Nanobot-Signature"] = f"sha256={signature(self._secret, body)}"
        try:
            answer = await self._http.request(
                "POST",
                self._url,
                headers=headers,
                body=body,
                timeout_s=self._timeout_s,
                max_bytes=MAX_ANSWER,
            )
        except HttpError as e:
            raise HookFailed(str(e)) from e
        if answer.status == 204:
            return None
        if answer.status != 200:
            raise HookFailed(f"it answered with HTTP status {answer.status}, not 200 or 204")
        try:
            value = msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, RecursionError) as e:
            raise HookFailed("its answer is no JSON") from e
        if not isinstance(value, dict):
            raise HookFailed("its answer is no JSON object")
        return value  # pyright: ignore[reportUnknownVariableType]


def signature(secret: str, body: bytes) -> str:
    """What a receiver computes over the body it got, to know who sent it."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
