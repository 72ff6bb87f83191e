"""What a model probably meant by a tool name that does not exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nanobot.distance import edit_distance

_FARTHEST: Final = 2
_MOST_NAMES: Final = 40


def unknown_tool(name: str, known: Sequence[str]) -> str:
    """The error result for a call of `name`: the nearest known name, if one is near, and what there is.

    The near name is only offered, never called: a guess must not have effects.
    """
    near = nearest_name(name, known)
    meant = f" Did you mean {near!r}?" if near else ""
    names = ", ".join(known[:_MOST_NAMES])
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    available = f" Available tools: {names}{more}." if known else " There are no tools in this conversation."
    return f"There is no tool {name!r}.{meant}{available}"


def nearest_name(name: str, known: Sequence[str]) -> str | None:
    """The name equal but for case and punctuation, else the one at most two edits away; None if none is."""
    bare = _bare(name)
    for candidate in known:
        if bare and _bare(candidate) == bare:
            return candidate
    distances = [(edit_distance(name, one, _FARTHEST + 1), one) for one in known]
    near = [pair for pair in distances if pair[0] <= _FARTHEST]
    return min(near)[1] if near else None


def _bare(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())
