"""One login of a person: the address to open, and what comes back from there."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import anyio

from nanobot.errors import StoreError
from nanobot.ids import new_id
from nanobot.upstream.oauth.failures import AuthorizationFailed
from nanobot.upstream.oauth.grant import Grant
from nanobot.upstream.oauth.token_endpoint import resource_parameter

log = logging.getLogger(__name__)

FLOW_S: Final = 15 * 60.0
MAX_FLOWS: Final = 1000
REDEEM_S: Final = 30.0

_NO_OFFLINE_HOSTS: Final = ("mcp.zoho.com",)
_ERROR_CODE = re.compile(r"[a-z_]{1,64}")

Redeem = Callable[["Flow", str], Awaitable[None]]
"""Turns the code of a flow into tokens and keeps them. Raises `AuthorizationFailed`."""


class InvalidState(Exception):
    """No flow waits for this answer: it is unknown, was answered before, or its time is over."""


class Flow:
    """A login under way. `url` is what the person opens; `done` is set when it has succeeded or failed.

    `account`: who alone may complete it; "" anybody who may talk to us. `grant` has no new token yet.
    """

    def __init__(
        self,
        grant: Grant,
        *,
        scopes: tuple[str, ...],
        redirect_uri: str,
        account: str,
        redeem: Redeem,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.grant = grant
        self.scopes = scopes
        self.redirect_uri = redirect_uri
        self.account = account
        self.id = new_id("login")
        self.state = secrets.token_urlsafe(32)
        self.verifier = secrets.token_urlsafe(48)
        self.url = self._authorize_url()
        self.done = anyio.Event()
        self.failure = ""
        self.asking = anyio.Lock()
        """Held by the one caller who puts the login to a person."""
        self.declined = 0
        """How often a person said no to it."""
        self._redeem = redeem
        self._clock = clock
        self._expires_at = clock() + FLOW_S

    @property
    def is_open(self) -> bool:
        """Whether `url` can still lead to a login."""
        return not self.done.is_set() and self.left_s > 0

    @property
    def left_s(self) -> float:
        return self._expires_at - self._clock()

    def fail(self, reason: str) -> None:
        if not self.done.is_set():
            self.failure = reason
            self.done.set()

    async def answer(self, said: Mapping[str, str]) -> None:
        """Take what the authorization server sent back with the person; afterwards the flow is done.

        Raises `AuthorizationFailed` with the reason if there is no login now.
        """
        try:
            # What the server gives for the code must be kept, even if the person closes the page meanwhile.
            with anyio.fail_after(REDEEM_S, shield=True):
                await self._redeem(self, self._code(said))
        except TimeoutError:
            self.fail("its authorization server took too long")
        except AuthorizationFailed as e:
            self.fail(e.reason)
        except StoreError as e:
            self.fail(str(e))
        if self.failure:
            raise AuthorizationFailed(self.failure)
        self.done.set()

    def _code(self, said: Mapping[str, str]) -> str:
        """The code, after it is clear who speaks: a foreign server must learn no code of ours (RFC 9207)."""
        server = self.grant.authorization_server
        named = said.get("iss")
        # Compared as text: whoever may vary the spelling of a name may also make two of one.
        if server.says_issuer if named is None else named != server.issuer:
            raise AuthorizationFailed("the login was answered by another authorization server than was asked")
        if (error := said.get("error")) is not None:
            code = error if _ERROR_CODE.fullmatch(error) else "an error"
            raise AuthorizationFailed(f"its authorization server refused the login ({code})")
        if not said.get("code"):
            raise AuthorizationFailed("the login came back without a code")
        return said["code"]

    def _authorize_url(self) -> str:
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).rstrip(b"=")
        ours = {
            "response_type": "code",
            "client_id": self.grant.client.id,
            "redirect_uri": self.redirect_uri,
            "state": self.state,
            "code_challenge": challenge.decode(),
            "code_challenge_method": "S256",
            **resource_parameter(self.grant),
        }
        parts = urlsplit(self.grant.authorization_server.authorize_url)
        if self.scopes:
            ours["scope"] = " ".join(self.scopes)
        if parts.hostname not in _NO_OFFLINE_HOSTS:
            ours["access_type"] = "offline"
        if "offline_access" in self.scopes:
            ours["prompt"] = "consent"
        theirs = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] not in ours]
        return urlunsplit(parts._replace(query=urlencode([*theirs, *ours.items()])))


class Flows:
    """The logins under way in this process, by their state. An answer is taken once."""

    def __init__(self) -> None:
        self._open: dict[str, Flow] = {}

    def add(self, flow: Flow) -> None:
        self._open = {state: one for state, one in self._open.items() if one.is_open}
        while len(self._open) >= MAX_FLOWS:
            self._open.pop(next(iter(self._open))).fail("too many logins are under way")
        self._open[flow.state] = flow

    async def answer(self, said: Mapping[str, str], *, account: str = "") -> None:
        """Hand an answer to the flow it belongs to. Raises `InvalidState` and `AuthorizationFailed`.

        The flow of another account is not touched: whoever got hold of its address cannot end it.
        """
        state = said.get("state", "")
        flow = self._open.get(state)
        if flow is None or flow.account not in ("", account):
            raise InvalidState
        del self._open[state]
        if not flow.is_open or not hmac.compare_digest(flow.state, state):
            raise InvalidState
        await flow.answer(said)
