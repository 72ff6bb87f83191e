"""From a server that refuses us to the authorization server that can let us in.

RFC 9728 describes the protected resource, RFC 8414 and OpenID Connect Discovery the authorization server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from nanobot.http import Http
from nanobot.upstream.oauth.addresses import checked, covers, origin, same_identifier
from nanobot.upstream.oauth.documents import fetch_document
from nanobot.upstream.oauth.failures import AuthorizationFailed
from nanobot.wire.challenge import Challenge


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A server as it describes itself. `id` is what tokens for it are asked for."""

    id: str
    issuer: str
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationServer:
    """What we use of an authorization server. "" means that it offers no such thing."""

    issuer: str
    authorize_url: str
    token_url: str
    register_url: str = ""
    revoke_url: str = ""
    scopes: tuple[str, ...] = ()
    auth_methods: tuple[str, ...] = ()
    """How clients may prove themselves at the token endpoint; empty: it does not say."""
    takes_client_documents: bool = False
    """Whether a client id may be the URL of a document about the client."""
    says_issuer: bool = False
    """Whether every answer of its authorization endpoint names it (RFC 9207)."""


async def find_resource(http: Http, server_url: str, challenge: Challenge) -> Resource:
    """The server at `server_url` as it describes itself; without a description, it is its own issuer."""
    for url in _resource_documents(server_url, challenge):
        document = await fetch_document(http, url)
        if document is None:
            continue
        id = document.get("resource")
        if not isinstance(id, str) or not covers(id, server_url):
            raise AuthorizationFailed("its metadata describes another resource")
        issuers = _texts(document.get("authorization_servers"))
        issuer = checked(issuers[0], "the authorization server it names") if issuers else origin(server_url)
        return Resource(id=id, issuer=issuer, scopes=_texts(document.get("scopes_supported")))
    return Resource(id=server_url, issuer=origin(server_url))


async def find_authorization_server(http: Http, issuer: str) -> AuthorizationServer:
    """The authorization server that calls itself `issuer`. Without metadata it has the customary endpoints.

    Raises `AuthorizationFailed`, also if it does not do PKCE with S256 or calls itself something else.
    """
    for url in _server_documents(issuer):
        document = await fetch_document(http, url)
        if document is not None:
            return _described(document, issuer)
    base = checked(origin(issuer), "the authorization server")
    return AuthorizationServer(
        issuer=issuer,
        authorize_url=f"{base}/authorize",
        token_url=f"{base}/token",
        register_url=f"{base}/register",
    )


def _resource_documents(server_url: str, challenge: Challenge) -> Iterator[str]:
    if challenge.metadata_url:
        yield challenge.metadata_url
    root, path = origin(server_url) + "/.well-known/oauth-protected-resource", _path(server_url)
    if path:
        yield root + path
    yield root


def _server_documents(issuer: str) -> Iterator[str]:
    root, path = origin(issuer), _path(issuer)
    yield f"{root}/.well-known/oauth-authorization-server{path}"
    yield f"{root}/.well-known/openid-configuration{path}"
    if path:
        yield f"{root}{path}/.well-known/openid-configuration"


def _described(document: Mapping[str, object], issuer: str) -> AuthorizationServer:
    named = document.get("issuer")
    if not isinstance(named, str) or not same_identifier(named, issuer):
        raise AuthorizationFailed("its authorization server calls itself something else than it is called")
    methods = document.get("code_challenge_methods_supported")
    if methods is not None and "S256" not in _texts(methods):
        raise AuthorizationFailed("its authorization server does not do PKCE with S256")

    def optional(key: str) -> str:
        return checked(document[key], f"its {key}") if document.get(key) else ""

    return AuthorizationServer(
        issuer=named,
        authorize_url=checked(document.get("authorization_endpoint"), "its authorization_endpoint"),
        token_url=checked(document.get("token_endpoint"), "its token_endpoint"),
        register_url=optional("registration_endpoint"),
        revoke_url=optional("revocation_endpoint"),
        scopes=_texts(document.get("scopes_supported")),
        auth_methods=_texts(document.get("token_endpoint_auth_methods_supported")),
        takes_client_documents=document.get("client_id_metadata_document_supported") is True,
        says_issuer=document.get("authorization_response_iss_parameter_supported") is True,
    )


def _path(url: str) -> str:
    return urlsplit(url).path.rstrip("/")


def _texts(value: object) -> tuple[str, ...]:
    """The texts in a list of JSON values; none in anything else."""
    if not isinstance(value, list):
        return ()
    items = cast("list[object]", value)
    return tuple(item for item in items if isinstance(item, str))
