"""How far agents may hand work on to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

DEEPEST: Final = 8
SAME_AGENT: Final = 3


def refusal(waiting: Sequence[str], callee: str) -> str | None:
    """Why `callee` may not be asked by the last of the agents in `waiting`; None if it may.

    The same agent may appear a few times, which makes A → B → A possible and an endless ring impossible.
    """
    chain = " → ".join([*waiting, callee])
    if len(waiting) > DEEPEST:
        return f"Agent {callee!r} was not asked: at most {DEEPEST} agents may wait for each other ({chain})."
    if [*waiting, callee].count(callee) > SAME_AGENT:
        return f"Agent {callee!r} was not asked: it is already working on this {SAME_AGENT} times ({chain})."
    return None
