"""Telling a client that it must sign in, and where it learns how."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from starlette.types import Scope

from nanobot.server.auth.principal import NotSignedIn
from nanobot.server.auth.public_url import PublicUrl
from nanobot.server.exchange import Exchange
from nanobot.server.problems import BadRequest

RESOURCE_PATH = "/.well-known/oauth-protected-resource"

_is_mcp_path = re.compile(r"/mcp(/[A-Za-z0-9-]*)?").fullmatch
_UNQUOTABLE = re.compile(r'[^\x20-\x7e]|["\\]')


def bearer_challenge(
    public_url: PublicUrl | None, scope: Scope, *, scopes: Sequence[str], error: str = ""
) -> tuple[bytes, bytes]:
    """The header `WWW-Authenticate` for a token that is missing, or wrong for the reason `error`.

    `public_url` is None where there is no description of the resource to point to.
    """
    parts: list[str] = []
    if error:
        parts += ['error="invalid_token"', f'error_description="{_quotable(error)}"']
    if public_url is not None:
        resource = scope["path"] if _is_mcp_path(scope["path"]) else ""
        parts.append(f'resource_metadata="{public_url(scope)}{RESOURCE_PATH}{resource}"')
    if scopes:
        parts.append(f'scope="{_quotable(" ".join(scopes))}"')
    return (b"www-authenticate", f"Bearer {', '.join(parts)}".rstrip().encode("latin-1"))


class Challenge:
    """Answers 401 and describes the resource (RFC 9728).

    `issuers` are the authorization servers that give tokens for us; None of them means we ourselves.
    """

    def __init__(
        self, public_url: PublicUrl, *, issuers: Sequence[str | None], scopes: Sequence[str], name: str
    ) -> None:
        self._public_url = public_url
        self._issuers = issuers
        self._scopes = scopes
        self._name = name

    async def refuse(self, http: Exchange, refused: NotSignedIn) -> None:
        """401. A client that sent nothing is told no error, only where to begin."""
        error = "" if refused.is_missing else str(refused)
        header = bearer_challenge(self._public_url, http.scope, scopes=self._scopes, error=error)
        body = {
            "error": "unauthorized" if refused.is_missing else "invalid_token",
            "error_description": str(refused),
        }
        await http.answer_json(body, status=401, headers=[header, (b"connection", b"close")])

    async def describe(self, http: Exchange, path: str) -> None:
        """`GET /.well-known/oauth-protected-resource[/mcp…]`."""
        if path and not _is_mcp_path(path):
            raise BadRequest(404, "not_found", "There is no such resource.")
        public = self._public_url(http.scope)
        about: dict[str, Any] = {
            "resource": public + path,
            "resource_name": self._name,
            "bearer_methods_supported": ["header"],
        }
        if servers := [public if issuer is None else issuer for issuer in self._issuers]:
            about["authorization_servers"] = servers
        if self._scopes:
            about["scopes_supported"] = list(self._scopes)
        await http.answer_json(about)


def is_mcp_path(scope: Scope) -> bool:
    return _is_mcp_path(scope["path"]) is not None


def _quotable(text: str) -> str:
    return _UNQUOTABLE.sub("?", text)
