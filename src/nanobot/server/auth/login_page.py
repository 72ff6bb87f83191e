"""`/login` and `/logout`: how a browser gets a session and gives it back."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from html import escape
from typing import Final

from nanobot.server.auth.api_keys import SCHEME as API_KEY
from nanobot.server.auth.api_keys import ApiKeys
from nanobot.server.auth.cookies import is_our_own_page, read_cookie, write_cookie
from nanobot.server.auth.forms import read_form, read_query
from nanobot.server.auth.launch_secret import SCHEME as LAUNCH_SECRET
from nanobot.server.auth.launch_secret import LaunchSecret
from nanobot.server.auth.logins import COOKIE, KEEP_S, Logins
from nanobot.server.auth.plain_page import own_path, redirect, show_page
from nanobot.server.auth.rate_limit import RateLimit
from nanobot.server.exchange import Exchange
from nanobot.server.methods import Methods

WRONG_PER_MINUTE: Final = 10
BEGUN_PER_MINUTE: Final = 60
"""How often one client may be sent to the identity provider; each time something is stored for a while."""

BeginAtProvider = Callable[[Exchange, str], Awaitable[None]]
"""Send the browser to the identity provider; the path is where it is to be afterwards."""


class LoginPage:
    """A form for the launch secret or an API key, a link for the identity provider, or only the latter."""

    def __init__(
        self,
        logins: Logins,
        *,
        keys: ApiKeys | None,
        secret: LaunchSecret | None,
        provider: BeginAtProvider | None,
        clock: Callable[[], float],
    ) -> None:
        self._logins = logins
        self._keys = keys
        self._secret = secret
        self._provider = provider
        self._wrong = RateLimit(WRONG_PER_MINUTE, clock)
        self._begun = RateLimit(BEGUN_PER_MINUTE, clock)

    def find(self, path: str) -> Methods | None:
        match path:
            case "/login":
                return {"GET": self.show, "POST": self.sign_in}
            case "/logout":
                return {"GET": self.sign_out, "POST": self.sign_out}
            case _:
                return None

    async def show(self, http: Exchange) -> None:
        """`GET /login[?next=/path][&code=…]`: the form; a good code signs in at once."""
        query = read_query(http)
        place = own_path(query.get("next", "/"))
        if (code := query.get("code")) is not None and self._secret is not None:
            if await self._is_too_fast(http, self._wrong):
                return
            if self._secret.spend_code(code):
                await self._welcome(http, LAUNCH_SECRET, self._secret.proof, place)
                return
            self._wrong.count(http.scope)
            await self._form(http, place, "This link has been used. Sign in with the secret itself.", 403)
        elif self._provider is not None and (not self._takes_secrets or query.get("via") == "provider"):
            if not await self._is_too_fast(http, self._begun):
                self._begun.count(http.scope)
                await self._provider(http, place)
        elif not self._takes_secrets:
            await show_page(http, "Not signed in", "<p>This server takes bearer tokens only.</p>", status=401)
        else:
            await self._form(http, place)

    async def sign_in(self, http: Exchange) -> None:
        """`POST /login` with the form's fields `secret` and `next`."""
        fields = await read_form(http)
        place = own_path(fields.get("next", "/"))
        if not is_our_own_page(http.scope):  # else another page could sign a person in as somebody else
            await self._form(http, place, "Sign in on this page.", 403)
            return
        if await self._is_too_fast(http, self._wrong):
            return
        digest = hashlib.sha256(fields.get("secret", "").strip().encode()).hexdigest()
        if self._secret is not None and await self._secret.by_digest(digest):
            await self._welcome(http, LAUNCH_SECRET, digest, place)
        elif self._keys is not None and await self._keys.by_digest(digest):
            await self._welcome(http, API_KEY, digest, place)
        else:
            self._wrong.count(http.scope)
            await self._form(http, place, "That is not it.", 403)

    async def sign_out(self, http: Exchange) -> None:
        """`/logout`: the session is over here and in the browser."""
        if not is_our_own_page(http.scope):
            await show_page(http, "Sign out", '<p><a href="/logout">Sign out</a></p>', status=403)
            return
        await self._logins.end(read_cookie(http.scope, COOKIE))
        gone = write_cookie(http.scope, COOKIE, "", max_age_s=0, same_site="Strict")
        body = '<p>You are signed out. <a href="/login">Sign in</a></p>'
        await show_page(http, "Signed out", body, headers=[gone])

    @property
    def _takes_secrets(self) -> bool:
        return self._secret is not None or self._keys is not None

    async def _welcome(self, http: Exchange, scheme: str, proof: str, place: str) -> None:
        cookie = await self._logins.begin(scheme, proof)
        header = write_cookie(http.scope, COOKIE, cookie, max_age_s=KEEP_S, same_site="Strict")
        await redirect(http, place, headers=[header])

    async def _is_too_fast(self, http: Exchange, limit: RateLimit) -> bool:
        """Whether too many tries came from there; then that is said."""
        if not (wait_s := limit.wait_s(http.scope)):
            return False
        retry = (b"retry-after", b"%d" % wait_s)
        await show_page(
            http, "Too many tries", f"<p>Try again in {wait_s} s.</p>", status=429, headers=[retry]
        )
        return True

    async def _form(self, http: Exchange, place: str, problem: str = "", status: int = 200) -> None:
        said = f'<p class="bad">{escape(problem)}</p>' if problem else ""
        wanted = "Launch secret" if self._keys is None else "API key"
        link = ""
        if self._provider is not None:
            target = escape(f"/login?via=provider&next={place}")
            link = f'<p><a href="{target}">Sign in with your identity provider</a></p>'
        body = (
            f'{said}<form method="post" action="/login"><label>{wanted}'
            '<input type="password" name="secret" autofocus autocomplete="current-password" required></label>'
            f'<input type="hidden" name="next" value="{escape(place)}">'
            f'<button type="submit">Sign in</button></form>{link}'
        )
        await show_page(http, "Sign in to nanobot", body, status=status)
