"""Which addresses a server may send us to, and when two of them belong together."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from nanobot.addresses import PUBLIC_ONLY, AddressForbidden, AddressRules, find_addresses
from nanobot.config.model import McpServer
from nanobot.upstream.oauth.failures import AuthorizationFailed

ALLOW = "`oauth.allowHosts` of the server may allow it"

_LOOPBACK = ("localhost", "127.0.0.0/8", "::1")


def rules_for(server: McpServer, url: str) -> AddressRules:
    """Where `server`, which is reached at `url`, may send us for a login.

    To the public web and to what `oauth.allowHosts` names. A server that the operator wrote down also to its
    own host, which on this machine means all of this machine: it is there already.
    """
    if not server.is_trusted:
        return PUBLIC_ONLY
    host = urlsplit(url).hostname or ""
    own = _LOOPBACK if is_loopback(host) else (host,)
    return AddressRules((*own, *(server.oauth.allow_hosts if server.oauth is not None else ())))


async def check_page(url: str, what: str, rules: AddressRules) -> None:
    """Raise `AuthorizationFailed` if a page that a person is to open leads where `rules` do not permit it."""
    parts = urlsplit(url)
    try:
        await find_addresses(parts.hostname or "", parts.port or 443, rules)
    except AddressForbidden as e:
        raise AuthorizationFailed(f"{what} is not opened: {e} ({ALLOW})") from e
    except OSError:
        pass  # their browser may know the name


def checked(url: object, what: str) -> str:
    """`url` if a secret may travel there: https, or http to this machine. Raises `AuthorizationFailed`."""
    parts = _split(url)
    is_safe = parts is not None and (
        parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    )
    if parts is None or not is_safe or not parts.hostname or "@" in parts.netloc or parts.fragment:
        raise AuthorizationFailed(f"{what} is no https address that can be used")
    assert isinstance(url, str)
    return url


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def same_identifier(a: str, b: str) -> bool:
    """Whether two issuers are one. `https://as` and `https://as/` are the same URL, and both are in use."""
    return a.removesuffix("/") == b.removesuffix("/")


def covers(resource: str, url: str) -> bool:
    """Whether `resource` is `url` or a parent of it."""
    outer, inner = _split(resource), _split(url)
    if (
        outer is None
        or inner is None
        or _place(outer) != _place(inner)
        or outer.query not in ("", inner.query)
    ):
        return False
    path = outer.path.rstrip("/")
    return inner.path.rstrip("/") == path or inner.path.startswith(path + "/")


def _place(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _split(url: object) -> SplitResult | None:
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts
