"""What the page of an MCP App may do in a browser: nothing over the network but what its server declares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from nanobot.narrow import list_of
from nanobot.server.problems import Header

MOST_SOURCES: Final = 50
"""Of one list; a server that needs more hosts than that does not say what it needs."""

_is_source = re.compile(
    r"(?:https?|wss?)://(?:\*\.)?[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?(?::[0-9]{1,5})?", re.IGNORECASE
).fullmatch


def app_headers(csp: Mapping[str, Any]) -> tuple[Header, ...]:
    """The headers of an app's page. `csp` is what its resource declares (`_meta.ui.csp`).

    The page has an origin of its own that equals no other: no cookies, no storage, no way out.
    """
    resources = _sources(csp, "resourceDomains")
    policy = "; ".join(
        (
            "sandbox allow-scripts allow-forms",
            "default-src 'none'",
            " ".join(("script-src 'unsafe-inline'", *resources)),
            " ".join(("style-src 'unsafe-inline'", *resources)),
            " ".join(("img-src data: blob:", *resources)),
            " ".join(("font-src data:", *resources)),
            " ".join(("media-src data: blob:", *resources)),
            _only("connect-src", _sources(csp, "connectDomains")),
            _only("frame-src", _sources(csp, "frameDomains")),
            _only("base-uri", _sources(csp, "baseUriDomains")),
            "form-action 'none'",
            "frame-ancestors 'self'",
        )
    )
    return (
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", policy.encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"x-dns-prefetch-control", b"off"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-resource-policy", b"same-origin"),
    )


def _only(directive: str, sources: list[str]) -> str:
    return " ".join((directive, *(sources or ["'none'"])))


def _sources(csp: Mapping[str, Any], name: str) -> list[str]:
    """The hosts that a list names; whatever else is in it, wildcards and keywords too, is left out."""
    listed = list_of(csp.get(name))[:MOST_SOURCES]
    return [one.lower() for one in listed if isinstance(one, str) and _is_source(one)]
