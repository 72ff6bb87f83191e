"""What HTTP takes: addresses, hosts, origins and headers as people write them, checked where they stand.

A text with a reference in it (`${NAME}`) is known only when it is used, and passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import SplitResult, urlsplit

from nanobot.config.nodes import Scalar
from nanobot.config.view import View

OURS: Final = frozenset(
    "host content-length transfer-encoding connection keep-alive te trailer upgrade "
    "mcp-session-id mcp-protocol-version mcp-method mcp-name last-event-id".split()
)
"""Headers that say how a message is to be read: they are the protocol's, and a fixed value would break it."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_PERMITTED = re.compile(r"(\*\.)?[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+(/[0-9]{1,3})?")


def split_address(text: str) -> SplitResult | None:
    """The parts of an address; None for one that cannot be taken apart, or names no host or a wrong port."""
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        return None
    return url if url.hostname else None


def check_address(view: View, key: str) -> None:
    """`key` is the http(s) address of a server."""
    text = view.text(key)
    if not text or text.startswith("${"):
        return
    place, at = view.place.key(key), view.origin(key)
    if not text.startswith(("http://", "https://")):
        place.error("bad-value", at, "A url begins with http:// or https://.")
    elif "${" not in text and split_address(text) is None:
        place.error("bad-value", at, "This is no address: it needs a host, and a port is at most 65535.")


def check_headers(view: View, key: str, *, ours: frozenset[str] = frozenset()) -> None:
    """`key` maps names of headers to values; those in `ours` (lower case) are none of the user's."""
    for name, entry in view.entries(key).items():
        place, at = view.place.key(key).key(name), entry.key_at
        if "${" not in name and not _TOKEN.fullmatch(name):
            place.error("bad-value", at, "The name of a header is made of letters, digits and `-_.` alone.")
        elif name.lower() in ours:
            place.error("bad-value", at, f"The header {name!r} belongs to the protocol and cannot be set.")
        if isinstance(entry.node, Scalar) and re.search(r"[\r\n\0]", str(entry.node.value)):
            place.error("bad-value", entry.node.at, "The value of a header is one line.")


def check_hosts(view: View, key: str) -> None:
    """`key` lists hosts by which we may be called, `name` or `name:port`."""

    def is_host(text: str) -> bool:
        name, colon, port = text.rpartition(":")
        return bool(_HOST.fullmatch(text) or (colon and _HOST.fullmatch(name) and port.isdigit()))

    _check_each(view, key, is_host, "This is no host such as bot.example.com.")


def check_permitted(view: View, key: str) -> None:
    """`key` lists hosts that may be reached: names, `*.` before them, addresses, networks."""
    expected = "This is no host such as sso.example.com or *.example.com, and no network such as 10.0.0.0/8."
    _check_each(view, key, lambda text: bool(_PERMITTED.fullmatch(text)), expected)


def check_origins(view: View, key: str) -> None:
    """`key` lists origins of pages: scheme, host and maybe port."""

    def is_origin(text: str) -> bool:
        url = split_address(text)
        return url is not None and text.rstrip("/").lower() == f"{url.scheme}://{url.netloc.lower()}"

    _check_each(view, key, is_origin, "Origins are named one by one, such as https://app.example.com.")


def _check_each(view: View, key: str, is_good: Callable[[str], bool], expected: str) -> None:
    for text, at, place in view.items(key):
        if "${" not in text and not is_good(text):
            place.error("bad-value", at, expected)
