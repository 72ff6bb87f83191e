"""Pages for signing in: a few lines of HTML without any script, sent with the strictest policy."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from typing import Final

from nanobot.server.exchange import Exchange
from nanobot.server.problems import Header

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:30rem;margin:12vh auto;padding:0 1rem}"
    "h1{font-size:1.4rem}input{font:inherit;width:100%;padding:.5rem;box-sizing:border-box}"
    "button{font:inherit;padding:.5rem 1.2rem;margin:1rem .5rem 0 0}"
    "code{overflow-wrap:anywhere}.bad{color:#a00}"
    "@media(prefers-color-scheme:dark){body{background:#181818;color:#eee}.bad{color:#f88}a{color:#8bf}}"
)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

_HEADERS: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'".encode(),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)


async def show_page(
    http: Exchange,
    title: str,
    body: str,
    *,
    status: int = 200,
    headers: Sequence[Header] = (),
    onward: str = "",
) -> None:
    """Show `body`, which is HTML with everything foreign in it escaped already.

    `onward`: where the browser goes by itself. Not a redirect, because a policy on forms also forbids where
    a form's answer redirects to.
    """
    refresh = f'<meta http-equiv="refresh" content="0;url={escape(onward)}">' if onward else ""
    html = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{refresh}'
        f'<meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>"
    )
    await http.answer(status, [*_HEADERS, *headers], html.encode())


async def redirect(http: Exchange, place: str, *, headers: Sequence[Header] = ()) -> None:
    """Send the browser to `place`, an address that was checked."""
    location = (b"location", place.encode("latin-1", "replace"))
    await http.answer(
        303, [location, (b"cache-control", b"no-store"), (b"referrer-policy", b"no-referrer"), *headers]
    )


def own_path(text: str) -> str:
    """`text` if it is a path on this server, else `/`: nobody is to be sent elsewhere after signing in."""
    is_path = text.startswith("/") and not text.startswith("//") and "\\" not in text
    return text if is_path and text.isascii() and text.isprintable() and " " not in text else "/"
