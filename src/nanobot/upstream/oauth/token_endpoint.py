"""The token endpoint: a code for tokens, a refresh token for new ones, tokens taken back."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from nanobot.http import Http, HttpAnswer, HttpError
from nanobot.upstream.oauth.failures import AuthorizationFailed, ClientRefused, GrantRefused
from nanobot.upstream.oauth.grant import Client, Grant, Token

TOKEN_S: Final = 15.0
MAX_ANSWER: Final = 64 * 1024
RENEW_BEFORE_S: Final = 60.0
"""A token is renewed when it has less than this left."""

NO_RESOURCE_HOSTS: Final = ("login.microsoftonline.com",)
"""Hosts that refuse a request which says what its token is for."""

_TOKEN_TEXT = re.compile(r"[\x21-\x7e]{1,32768}")
_ERROR_CODE = re.compile(r"[a-z_]{1,64}")
_decode = msgspec.json.Decoder(dict[str, Any]).decode


async def exchange(
    http: Http,
    grant: Grant,
    *,
    code: str,
    verifier: str,
    redirect_uri: str,
    scopes: tuple[str, ...],
    now: float,
) -> Token:
    """The tokens for an authorization code. `scopes` were asked for; the server may grant others."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": verifier,
    }
    answer = await _ask(http, grant, form)
    return _token(answer, refresh="", scopes=scopes, now=now)


async def refresh(http: Http, grant: Grant, *, now: float) -> Token:
    """New tokens for the refresh token of `grant`. What the server does not repeat stays as it was."""
    assert grant.token is not None
    form = {"grant_type": "refresh_token", "refresh_token": grant.token.refresh}
    answer = await _ask(http, grant, form)
    return _token(answer, refresh=grant.token.refresh, scopes=grant.token.scopes, now=now)


async def revoke(http: Http, grant: Grant) -> bool:
    """Tell the authorization server that our tokens are not needed any more; whether it heard."""
    if grant.token is None or not grant.authorization_server.revoke_url:
        return False
    form = {"token": grant.token.refresh or grant.token.access}
    form |= {"token_type_hint": "refresh_token" if grant.token.refresh else "access_token"}
    try:
        answer = await post_form(http, grant.authorization_server.revoke_url, grant.client, form)
    except HttpError:
        return False
    return answer.status == 200


def resource_parameter(grant: Grant) -> dict[str, str]:
    """The parameter that says what a token is for (RFC 8707); it goes with every request for one."""
    host = urlsplit(grant.authorization_server.authorize_url).hostname
    return {} if host in NO_RESOURCE_HOSTS else {"resource": grant.resource}


async def _ask(http: Http, grant: Grant, form: Mapping[str, str]) -> Mapping[str, Any]:
    form = {**form, **resource_parameter(grant)}
    try:
        answer = await post_form(http, grant.authorization_server.token_url, grant.client, form)
    except HttpError as e:
        raise AuthorizationFailed(f"its authorization server gave no token: {e}") from e
    if answer.status == 200 and (said := _object(answer)) is not None:
        return said
    raise _refusal(answer)


async def post_form(http: Http, url: str, client: Client, form: Mapping[str, str]) -> HttpAnswer:
    """POST `form` as `client`, in the way it identifies itself. Raises `HttpError`."""
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    if client.auth_method == "client_secret_basic":
        pair = f"{quote(client.id, safe='')}:{quote(client.secret, safe='')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    elif client.id:
        form = {**form, "client_id": client.id}
        if client.auth_method == "client_secret_post":
            form["client_secret"] = client.secret
    return await http.request(
        "POST", url, headers=headers, body=urlencode(form).encode(), timeout_s=TOKEN_S, max_bytes=MAX_ANSWER
    )


def _refusal(answer: HttpAnswer) -> AuthorizationFailed:
    code = (_object(answer) or {}).get("error") if 400 <= answer.status < 500 else None
    if not isinstance(code, str) or not _ERROR_CODE.fullmatch(code):
        return AuthorizationFailed(f"its authorization server gave no token (HTTP status {answer.status})")
    reason = f"its authorization server gave no token ({code})"
    if code == "invalid_grant":
        return GrantRefused(reason)
    return ClientRefused(reason) if code == "invalid_client" else AuthorizationFailed(reason)


def read_token(answer: HttpAnswer, *, now: float) -> Token:
    """The token in a successful answer. Raises `AuthorizationFailed` if there is none."""
    return _token(_object(answer) or {}, refresh="", scopes=(), now=now)


def _token(said: Mapping[str, Any], *, refresh: str, scopes: tuple[str, ...], now: float) -> Token:
    access, kind = said.get("access_token"), said.get("token_type", "bearer")
    if not isinstance(access, str) or not _TOKEN_TEXT.fullmatch(access):
        raise AuthorizationFailed("its authorization server answered without a usable token")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise AuthorizationFailed("its authorization server gave a token that is not of the type Bearer")
    newer, scope = said.get("refresh_token"), said.get("scope")
    lasts_s = _seconds(said.get("expires_in"))
    return Token(
        access=access,
        refresh=newer if isinstance(newer, str) and newer else refresh,
        scopes=tuple(scope.split()) if isinstance(scope, str) and scope else scopes,
        expires_at=None if lasts_s is None else now + lasts_s,
        # A token that lasts for a minute must not be renewed at each request.
        renew_at=None if lasts_s is None else now + lasts_s - min(RENEW_BEFORE_S, lasts_s / 2),
    )


def _seconds(value: Any) -> float | None:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if 0 <= seconds < 1e10 else None


def _object(answer: HttpAnswer) -> Mapping[str, Any] | None:
    try:
        return _decode(answer.body)
    except (msgspec.DecodeError, RecursionError):
        return None
