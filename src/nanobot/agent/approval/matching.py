"""Whether a value of a call is one a matcher means. A value of the wrong kind is not, and no error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from nanobot.config.approvals import (
    AllOf,
    AnyOf,
    Contains,
    ContainsAll,
    Equals,
    In,
    Matcher,
    Matches,
    StartsWith,
)

PATTERN_S: Final = 0.1
"""How long one regular expression may look; what it comes to then is up to the rule."""

log = logging.getLogger(__name__)

Leaf = Equals | In | StartsWith | Matches | Contains | ContainsAll


def holds(matcher: Matcher, leaf_holds: Callable[[Leaf], bool]) -> bool:
    """Whether `matcher` holds if those of its leaves do for which `leaf_holds` says so."""
    match matcher:
        case AnyOf(matchers):
            return any(holds(one, leaf_holds) for one in matchers)
        case AllOf(matchers):
            return all(holds(one, leaf_holds) for one in matchers)
        case _:
            return leaf_holds(matcher)


def with_texts(matcher: Matcher, change: Callable[[str], str]) -> Matcher:
    """`matcher` with the texts it compares beginnings or wholes with changed."""
    match matcher:
        case AnyOf(matchers) | AllOf(matchers):
            return replace(matcher, matchers=tuple(with_texts(one, change) for one in matchers))
        case StartsWith(prefix):
            return StartsWith(change(prefix))
        case Equals(str(text)):
            return Equals(change(text))
        case In(values):
            return In(tuple(change(v) if isinstance(v, str) else v for v in values))
        case _:
            return matcher


def same(a: Any, b: Any) -> bool:
    """JSON equality: 1 is 1.0, true is no number, null is only null."""
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        these, those = cast("Sequence[Any]", a), cast("Sequence[Any]", b)
        return len(these) == len(those) and all(map(same, these, those))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        left, right = cast("Mapping[str, Any]", a), cast("Mapping[str, Any]", b)
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return isinstance(a, str) and a == b


def is_meant(leaf: Leaf, value: Any, *, in_doubt: bool) -> bool:
    """Whether `value` is meant by `leaf`.

    `in_doubt` is what a regular expression comes to that has not ended in time: True for a rule that refuses.
    """
    match leaf:
        case Equals(wanted):
            return same(value, wanted)
        case In(values):
            return any(same(value, one) for one in values)
        case StartsWith(prefix):
            return isinstance(value, str) and value.startswith(prefix)
        case Matches(pattern):
            return isinstance(value, str) and _is_found(pattern, value, in_doubt)
        case Contains(part):
            return _contains(value, part)
        case ContainsAll(parts):
            return (isinstance(value, str) or _is_list(value)) and all(_contains(value, p) for p in parts)


def _contains(value: Any, part: Any) -> bool:
    if isinstance(value, str):
        return isinstance(part, str) and part in value
    return _is_list(value) and any(same(one, part) for one in cast("Sequence[Any]", value))


def _is_found(pattern: str, text: str, in_doubt: bool) -> bool:
    import regex  # see `config.build_approvals`

    try:
        return regex.search(pattern, text, timeout=PATTERN_S) is not None
    except TimeoutError:
        log.warning("a regular expression of a rule took too long", extra={"pattern": pattern[:100]})
        return in_doubt


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
