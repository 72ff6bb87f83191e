"""Who may use us, from the document: what belongs together must be there together."""

from __future__ import annotations

import json
from ipaddress import ip_network
from urllib.parse import SplitResult, urlsplit

from nanobot.config.model import ApiKey, AuthSettings
from nanobot.config.view import View

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def build_auth(auth: View, server: View) -> AuthSettings:
    """Section `auth`; `server` is the section where trusted proxies stand."""
    _check_together(auth)
    _check_jwks(auth)
    for key in (
        "oauthJwksUrl",
        "apiKeyAuthWebhookUrl",
        "oauthAuthorizeUrl",
        "oauthTokenUrl",
        "trustedIssuer",
    ):
        _check_url(auth, key)
    if auth.value("remoteHeaders") and not server.names("trustedProxies"):
        message = "Anybody could send these headers: name the proxies to believe."
        auth.place.key("remoteHeaders").error(
            "bad-auth", auth.origin("remoteHeaders"), message, "set server.trustedProxies"
        )
    return AuthSettings(
        api_keys=_api_keys(auth),
        trusted_issuer=auth.text("trustedIssuer"),
        trusted_audiences=auth.names("trustedAudiences"),
        jwks=auth.text("jwks"),
        oauth_jwks_url=auth.text("oauthJwksUrl"),
        api_key_auth_webhook_url=auth.text("apiKeyAuthWebhookUrl"),
        mcp_server_id=auth.text("mcpServerId"),
        remote_headers=auth.value("remoteHeaders", False),
        oauth_client_id=auth.text("oauthClientId"),
        oauth_client_secret=auth.text("oauthClientSecret"),
        oauth_authorize_url=auth.text("oauthAuthorizeUrl"),
        oauth_token_url=auth.text("oauthTokenUrl"),
        oauth_scopes=auth.names("oauthScopes"),
        oauth_authorization_server_metadata=auth.value("oauthAuthorizationServerMetadata", {}),
        encryption_key=auth.text("encryptionKey"),
    )


def networks(server: View, key: str) -> tuple[str, ...]:
    """A list of addresses and networks; what is neither is reported."""
    good: list[str] = []
    for text, at, place in server.items(key):
        try:
            good.append(str(ip_network(text, strict=False)))
        except ValueError:
            place.error("bad-value", at, "This is neither an IP address nor a network such as 10.0.0.0/8.")
    return tuple(good)


def public_url(server: View) -> str:
    """`publicURL` as scheme and host, "" if there is none."""
    written = server.text("publicURL").rstrip("/")
    if not written:
        return ""
    url = _split(written)
    is_plain = url is not None and not (url.path or url.query or url.fragment or url.username)
    if url is None or url.scheme not in ("http", "https") or not url.hostname or not is_plain:
        message = "This is no address of a server, such as https://bot.example.com."
        server.place.key("publicURL").error("bad-value", server.origin("publicURL"), message)
        return ""
    return f"{url.scheme}://{url.netloc.lower()}"


def _api_keys(auth: View) -> tuple[ApiKey, ...]:
    keys: dict[str, ApiKey] = {}
    digests: dict[str, str] = {}
    if auth.has("apiKeys") and not auth.value("apiKeys"):
        message = "An empty list would leave everything open to everybody: name a key, or leave it out."
        auth.place.key("apiKeys").error("bad-auth", auth.origin("apiKeys"), message)
    for index, key in enumerate(auth.mappings("apiKeys")):
        place = auth.place.key("apiKeys").item(index)
        name, digest = key.text("name").strip(), key.text("sha256").lower()
        if not name or not digest:
            place.error("bad-auth", key.at, "A key needs `name` and `sha256`.")
        elif name in keys:
            place.error("bad-auth", key.at, f"Two keys have the name {name!r}.")
        elif digest in digests:
            message = f"{digests[digest]!r} and {name!r} have the same key, so nobody could tell them apart."
            place.error("bad-auth", key.at, message)
        else:
            keys[name], digests[digest] = ApiKey(name=name, sha256=digest), name
    return tuple(keys.values())


def _check_jwks(auth: View) -> None:
    """The text of a key set, unless it comes from the environment. The keys in it are read when we start."""
    written = auth.text("jwks")
    if not written or "${" in written:
        return
    try:
        keys = json.loads(written)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        keys = None
    if not isinstance(keys, list) or not keys:
        message = 'This is no JSON Web Key Set, which looks like {"keys": [{"kty": …}]}.'
        auth.place.key("jwks").error("bad-value", auth.origin("jwks"), message)


def _check_together(auth: View) -> None:
    def lacks(key: str, *others: str) -> None:
        missing = [other for other in others if not auth.value(other)]
        if auth.value(key) and missing:
            message = f"`{key}` needs {' and '.join(f'`{name}`' for name in missing)} beside it."
            auth.place.key(key).error("bad-auth", auth.origin(key), message)

    lacks("trustedIssuer", "trustedAudiences")
    lacks("trustedAudiences", "trustedIssuer")
    lacks("oauthClientId", "oauthClientSecret", "oauthAuthorizeUrl")
    for key in ("oauthClientSecret", "oauthAuthorizeUrl", "oauthScopes"):
        lacks(key, "oauthClientId")
    lacks("mcpServerId", "apiKeyAuthWebhookUrl")
    # Keys alone would accept every token of that issuer, also those made for somebody else.
    lacks("jwks", "trustedIssuer")
    if not auth.value("oauthClientId"):
        lacks("oauthJwksUrl", "trustedIssuer")


def _check_url(auth: View, key: str) -> None:
    """Tokens and secrets travel to these addresses: https, or this machine."""
    written = auth.text(key)
    if not written or "${" in written:
        return
    url = _split(written)
    if url is None or not is_safe(url):
        message = "This is no https:// address (http:// is for this machine only)."
        auth.place.key(key).error("bad-value", auth.origin(key), message)


def is_safe(url: SplitResult) -> bool:
    """Whether secrets may be sent there: over TLS, or not leaving this machine."""
    return bool(url.hostname) and (
        url.scheme == "https" or (url.scheme == "http" and url.hostname in LOOPBACK)
    )


def _split(text: str) -> SplitResult | None:
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        return None
    return url
