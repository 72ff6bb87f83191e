"""What a server asks for when it refuses a request: the `Bearer` part of `WWW-Authenticate`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MAX_CHALLENGE: Final = 8 * 1024

_BEARER = re.compile(r"(?:^|[\s,])bearer(?=\s|,|$)", re.IGNORECASE)
_PARAMETER = re.compile(r'[\s,]*([A-Za-z_][\w-]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """`metadata_url`: where the server describes itself. "" and () mean that nothing was said."""

    status: int
    error: str = ""
    scopes: tuple[str, ...] = ()
    metadata_url: str = ""

    @property
    def wants_more_scope(self) -> bool:
        return self.status == 403 and self.error == "insufficient_scope"


def read_challenge(status: int, headers: Mapping[str, str]) -> Challenge:
    """The challenge of a 401 or 403; an empty one if there is none that we know."""
    for name, value in headers.items():  # the header may be there more than once
        if name.lower() != "www-authenticate" or len(value) > MAX_CHALLENGE:
            continue
        for scheme in _BEARER.finditer(value):  # the word may also stand in another scheme's realm
            said = _parameters(value, scheme.end())
            if not said:
                continue
            return Challenge(
                status=status,
                error=said.get("error", ""),
                scopes=tuple(said.get("scope", "").split()),
                metadata_url=said.get("resource_metadata", ""),
            )
    return Challenge(status=status)


def _parameters(text: str, at: int) -> dict[str, str]:
    """`name=value` pairs from `at` on, up to whatever is no such pair (another scheme)."""
    found: dict[str, str] = {}
    while (pair := _PARAMETER.match(text, at)) is not None:
        name, quoted, bare = pair.groups()
        found.setdefault(name.lower(), bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        at = pair.end()
    return found
