"""`/authorize`, consent, and `/callback`: a person lets a client use this server in their name."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec

from nanobot.server.auth.cookies import is_our_own_page, write_cookie
from nanobot.server.auth.forms import read_form, read_query
from nanobot.server.auth.logins import COOKIE, KEEP_S, Logins
from nanobot.server.auth.plain_page import redirect, show_page
from nanobot.server.auth.principal import AuthUnavailable, NotSignedIn
from nanobot.server.auth.proxy.clients import Client, Clients
from nanobot.server.auth.proxy.documents import is_address
from nanobot.server.auth.proxy.errors import OAuthError
from nanobot.server.auth.proxy.flows import Flow, Flows
from nanobot.server.auth.proxy.grants import SCHEME, Grants, challenge_of
from nanobot.server.auth.proxy.provider import Provider, ProviderRefused
from nanobot.server.auth.public_url import PublicUrl
from nanobot.server.exchange import Exchange

_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class Authorization:
    def __init__(
        self,
        *,
        clients: Clients,
        flows: Flows,
        grants: Grants,
        provider: Provider,
        logins: Logins,
        public_url: PublicUrl,
        scopes: Sequence[str],
    ) -> None:
        self._clients = clients
        self._flows = flows
        self._grants = grants
        self._provider = provider
        self._logins = logins
        self._public_url = public_url
        self._scopes = scopes

    async def ask(self, http: Exchange) -> None:
        """`GET /authorize`: the page on which a person agrees. Every time: a client that somebody agreed to
        once must not get a code again without being seen."""
        query = read_query(http)
        try:
            client = await self._clients.find(query.get("client_id", ""))
        except OAuthError as refused:
            await show_page(http, "Not possible", f"<p>{escape(str(refused))}</p>", status=400)
            return
        redirect_uri = query.get("redirect_uri", "")
        if client is None or redirect_uri not in client.redirect_uris:
            # Nothing here may be sent to an address that is not the client's.
            reason = (
                "is not registered here" if client is None else "asks to be answered at a foreign address"
            )
            await show_page(http, "Not possible", f"<p>The application {reason}.</p>", status=400)
            return
        flow = Flow(
            client=client.id,
            redirect_uri=redirect_uri,
            state=query.get("state", ""),
            challenge=query.get("code_challenge", ""),
            scope=self._granted(query.get("scope", "")),
        )
        try:
            self._check(http, query)
        except OAuthError as refused:
            await self._explain(http, flow, refused)
            return
        secret, cookie = await self._flows.begin(http, "oauth-consent", flow)
        await show_page(http, "Allow access?", _question(client, redirect_uri, secret), headers=[cookie])

    async def decide(self, http: Exchange) -> None:
        """`POST /authorize`: what the person said."""
        fields = await read_form(http)
        flow = None
        if is_our_own_page(http.scope):
            flow = await self._flows.take(http, "oauth-consent", fields.get("request", ""))
        if flow is None:
            await _lost(http)
        elif fields.get("decision") == "allow":
            await self._to_provider(http, flow, from_form=True)
        else:
            await self._refuse(http, flow, OAuthError("access_denied", "The person said no."), from_form=True)

    async def sign_in(self, http: Exchange, place: str) -> None:
        """Send the browser to the provider for a session of our own page, which then shows `place`."""
        await self._to_provider(http, Flow(next=place), from_form=False)

    async def come_back(self, http: Exchange) -> None:
        """`GET /callback`: the provider sends the browser back."""
        query = read_query(http)
        flow = await self._flows.take(http, "oauth-login", query.get("state", ""))
        if flow is None:
            await _lost(http)
            return
        try:
            grant = await self._grant(http, flow, query)
        except (NotSignedIn, AuthUnavailable) as failed:
            is_refusal = isinstance(failed, NotSignedIn)
            error = "access_denied" if is_refusal else "temporarily_unavailable"
            await self._refuse(http, flow, OAuthError(error, str(failed), status=403 if is_refusal else 503))
            return
        if flow.client:
            code = await self._grants.new_code(
                grant, client=flow.client, redirect_uri=flow.redirect_uri, challenge=flow.challenge
            )
            await redirect(http, self._answer_url(http, flow, {"code": code}))
        else:
            value = await self._logins.begin(SCHEME, grant, owner=grant)
            cookie = write_cookie(http.scope, COOKIE, value, max_age_s=KEEP_S, same_site="Lax")
            await redirect(http, flow.next, headers=[cookie])

    async def _grant(self, http: Exchange, flow: Flow, query: Mapping[str, str]) -> str:
        """The grant of whoever signed in. Raises `NotSignedIn` and `AuthUnavailable`."""
        if "error" in query or not query.get("code"):
            raise ProviderRefused("The identity provider did not sign anybody in.")
        issuer = (await self._provider.endpoints()).issuer
        if issuer and query.get("iss", issuer) != issuer:  # an answer mixed up with another provider's
            raise ProviderRefused("The answer is of another identity provider.")
        tokens = await self._provider.redeem(
            query["code"], redirect_uri=self._callback(http), verifier=flow.verifier
        )
        user = await self._provider.user(tokens, nonce=flow.nonce)
        return await self._grants.create(flow.client, user, tokens, flow.scope)

    async def _to_provider(self, http: Exchange, flow: Flow, *, from_form: bool) -> None:
        verifier, nonce = secrets.token_urlsafe(48), secrets.token_urlsafe(16)
        flow = msgspec.structs.replace(flow, verifier=verifier, nonce=nonce)
        state, cookie = await self._flows.begin(http, "oauth-login", flow)
        try:
            url = await self._provider.authorization_url(
                redirect_uri=self._callback(http),
                state=state,
                challenge=challenge_of(verifier),
                nonce=nonce,
            )
        except AuthUnavailable as failed:
            refused = OAuthError("temporarily_unavailable", str(failed), status=503)
            await self._refuse(http, flow, refused, from_form=from_form)
            return
        if from_form:
            body = f'<p><a href="{escape(url)}">Go on to sign in</a></p>'
            await show_page(http, "Signing in …", body, headers=[cookie], onward=url)
        else:
            await redirect(http, url, headers=[cookie])

    def _check(self, http: Exchange, query: Mapping[str, str]) -> None:
        if query.get("response_type") != "code":
            raise OAuthError("unsupported_response_type", "response_type must be code.")
        if query.get("code_challenge_method") != "S256":
            raise OAuthError("invalid_request", "code_challenge_method must be S256.")
        if not _CHALLENGE.fullmatch(query.get("code_challenge", "")):
            raise OAuthError("invalid_request", "code_challenge is missing or no SHA-256.")
        if not is_our_resource(query.get("resource", ""), self._public_url(http.scope)):
            raise OAuthError("invalid_target", "Tokens of this server are for this server only.")
        if len(query.get("state", "")) > 2048:
            raise OAuthError("invalid_request", "state is too long.")

    def _granted(self, asked: str) -> str:
        wanted = asked.split() or self._scopes
        return " ".join(one for one in wanted if one in self._scopes)

    async def _explain(self, http: Exchange, flow: Flow, refused: OAuthError) -> None:
        """Show what is wrong to a person who has not agreed to anything yet.

        Anybody may register any address, so a browser is not sent there before the person has seen where.
        """
        url = self._answer_url(http, flow, _told(refused))
        body = (
            f'<p class="bad">{escape(str(refused))}</p><p>The application asked in a way that is not '
            f"allowed. The answer would go to <b>{escape(_place_of(flow.redirect_uri))}</b>: "
            f'<a href="{escape(url)}">tell the application there</a>, if you know it.</p>'
        )
        await show_page(http, "Not possible", body, status=refused.status)

    async def _refuse(
        self, http: Exchange, flow: Flow, refused: OAuthError, *, from_form: bool = False
    ) -> None:
        """Tell the client, through the browser, or the person if our own page asked."""
        if not flow.client:
            body = f'<p class="bad">{escape(str(refused))}</p><p><a href="/login">Try again</a></p>'
            await show_page(http, "Not signed in", body, status=refused.status)
            return
        url = self._answer_url(http, flow, _told(refused))
        if from_form:
            body = f'<p><a href="{escape(url)}">Back to the application</a></p>'
            await show_page(http, "Not allowed", body, onward=url)
        else:
            await redirect(http, url)

    def _answer_url(self, http: Exchange, flow: Flow, told: Mapping[str, str]) -> str:
        answer = {**told, **({"state": flow.state} if flow.state else {})}
        answer["iss"] = self._public_url(http.scope)
        uri = flow.redirect_uri
        return f"{uri}{'&' if '?' in uri else '?'}{urlencode(answer)}"

    def _callback(self, http: Exchange) -> str:
        return f"{self._public_url(http.scope)}/callback"


def is_our_resource(resource: str, public_url: str) -> bool:
    """Whether a resource that a client names (none is fine) is this server or a part of it."""
    return not resource or resource.rstrip("/") == public_url or resource.startswith(f"{public_url}/")


def _told(refused: OAuthError) -> dict[str, str]:
    return {"error": refused.error, "error_description": str(refused)}


def _place_of(redirect_uri: str) -> str:
    place = urlsplit(redirect_uri)
    return place.hostname or f"{place.scheme}: (an application on this machine)"


def _question(client: Client, redirect_uri: str, secret: str) -> str:
    known = (
        f"It describes itself at <b>{escape(urlsplit(client.id).netloc)}</b>."
        if is_address(client.id)
        else ""
    )
    return (
        f"<p>The application <b>{escape(client.name or 'without a name')}</b> wants to use this nanobot in "
        f"your name. It gave itself that name; nobody has checked it. {known}</p>"
        f"<p>The answer goes to <b>{escape(_place_of(redirect_uri))}</b>.<br>"
        f"<code>{escape(redirect_uri)}</code></p>"
        f'<form method="post" action="/authorize"><input type="hidden" name="request" value="{secret}">'
        '<button name="decision" value="allow">Allow</button>'
        '<button name="decision" value="deny">Deny</button></form>'
    )


async def _lost(http: Exchange) -> None:
    body = "<p>This sign-in was not begun in this browser, has been used, or took too long. Begin again.</p>"
    await show_page(http, "Not possible", body, status=400)
