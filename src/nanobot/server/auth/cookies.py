"""Cookies: reading one, writing one, and when one may speak for a person.

A browser adds cookies by itself, so a page somewhere else could have a request sent in a person's name. A
cookie therefore counts only where the browser says that our own page asks, or that a person follows a link.
"""

from __future__ import annotations

from typing import Literal

from starlette.types import Scope

from nanobot.server.problems import Header

SameSite = Literal["Lax", "Strict"]


def read_cookie(scope: Scope, name: str) -> str:
    """The value of the cookie `name`; "" if there is none."""
    wanted = name.encode()
    for header, value in scope["headers"]:
        if header == b"cookie":
            for part in value.split(b";"):
                key, _, content = part.strip().partition(b"=")
                if key == wanted:
                    return content.decode("latin-1")
    return ""


def write_cookie(scope: Scope, name: str, value: str, *, max_age_s: int, same_site: SameSite) -> Header:
    """A `Set-Cookie` for the whole server that scripts cannot read; `max_age_s` 0 removes it."""
    secure = "; Secure" if scope["scheme"] == "https" else ""
    text = f"{name}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite={same_site}{secure}"
    return (b"set-cookie", text.encode("latin-1"))


def is_our_own_page(scope: Scope) -> bool:
    """Whether what the browser adds by itself may count for this request."""
    names_page = any(name == b"origin" and value for name, value in scope["headers"])
    return (names_page or scope["method"] in ("GET", "HEAD")) and not is_another_page(scope)


def is_another_page(scope: Scope) -> bool:
    """Whether a browser says that a page which is not ours asks. Programs say nothing of the kind."""
    host = origin = site = mode = b""
    for name, value in scope["headers"]:
        match name:
            case b"host":
                host = value.lower()
            case b"origin":
                origin = value.lower()
            case b"sec-fetch-site":
                site = value
            case b"sec-fetch-mode":
                mode = value
            case _:
                pass
    if origin:
        return origin != scope["scheme"].encode() + b"://" + host
    is_link = mode == b"navigate" and scope["method"] in ("GET", "HEAD")
    return site not in (b"", b"same-origin", b"none") and not is_link


def is_navigation(scope: Scope) -> bool:
    """Whether a person opens a page, to whom a page is the right answer."""
    if scope["method"] != "GET":
        return False
    headers = dict[bytes, bytes](scope["headers"])
    mode = headers.get(b"sec-fetch-mode")
    return mode == b"navigate" if mode else b"text/html" in headers.get(b"accept", b"")
