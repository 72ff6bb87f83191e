"""The names by which models know tools.

Configuration, events and history use the published name (`fs.read`); providers accept only
`[a-zA-Z_][a-zA-Z0-9_-]{0,63}`. The wire name follows from the published one, so stored calls keep resolving.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

_ACCEPTED: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_REFUSED_CHARACTER: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST: Final = 64


def wire_name(published: str) -> str:
    """`published` itself where providers accept it, else the nearest name they do."""
    if _ACCEPTED.fullmatch(published):
        return published
    name = _REFUSED_CHARACTER.sub("_", published)
    if not name or name[0] in "-0123456789":
        name = "t_" + name
    return name if len(name) <= _LONGEST else _told_apart(name, published)


def wire_names(published: Sequence[str]) -> dict[str, str]:
    """Published name → wire name, no two alike.

    A name that is accepted as it stands keeps it; of two others that would become equal, the later gets a
    piece of its hash.
    """
    names = {name: name for name in published if wire_name(name) == name}
    taken = set(names)
    for name in published:
        if name in names:
            continue
        wire = wire_name(name)
        names[name] = wire if wire not in taken else _told_apart(wire, name)
        taken.add(names[name])
    return names


def _told_apart(name: str, published: str) -> str:
    digest = hashlib.sha1(published.encode(), usedforsecurity=False).hexdigest()
    return f"{name[:55]}_{digest[:8]}"
