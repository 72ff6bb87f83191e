"""Whether a matcher of a rule that allows covers a command line: one strict reading, and in doubt no.

What a rule does not spell out may only be plain words, in which no shell finds anything to do. So there is a
short list of what may stand there, and none of what must not.
"""

from __future__ import annotations

import re
import string
import time
from collections.abc import Iterator
from typing import Final

from nanobot.agent.approval.matching import PATTERN_S, Leaf, is_meant
from nanobot.config.approvals import Contains, ContainsAll, Matches, StartsWith

LONGEST: Final = 4000
"""Characters of a command line that is looked into; a longer one must stand in the rule as a whole."""
_PLAIN: Final = re.compile(r"""[A-Za-z0-9 _.,:=/@%+'"-]|(?<=[A-Za-z0-9~^])[~^]""")
"""A character that means itself, quotes included: they only join words. `HEAD~2` is plain, `~/x` is not."""
_ASSIGNMENT: Final = re.compile(r"\s*[A-Za-z_]\w*\+?=")
_SEPARATORS: Final = (";", "&", "|", "(", "{", "`", "!", "\n")
_MOST_SIGNS: Final = 16
_OTHERS: Final = string.punctuation + "x0 \n\ue000"


def covers(leaf: Leaf, command: str) -> bool:
    """Whether what `leaf` says of the line settles what it runs.

    A beginning must end where a word ends, and plain words follow. A regular expression must fit from the
    beginning; where the line is not plain it must fit all of it, and insist on each sign in its place.
    """
    match leaf:
        case StartsWith(prefix):
            return command.startswith(prefix) and _goes_on_plainly(command, len(prefix))
        case Matches(pattern):
            return _is_expected(pattern, command)
        case Contains() | ContainsAll():
            is_plain = _goes_on_plainly(command, 0) and not _ASSIGNMENT.match(command)
            return is_plain and is_meant(leaf, command, in_doubt=False)
        case _:
            return is_meant(leaf, command, in_doubt=False)


def _goes_on_plainly(command: str, known: int) -> bool:
    """Whether plain words follow the first `known` characters, the last of which are a whole word.

    They must belong to a command that is known: behind `make &` another one would begin.
    """
    if 0 < known < len(command) and command[known] != " ":
        last = command[known - 1]
        if last.isalnum() or last in "_'\"":  # `ls` is not `lsof`
            return False
    if command[:known].rstrip(" ").endswith(_SEPARATORS) and command[known:].strip(" "):
        return False
    return len(command) <= LONGEST and not _signs(command, known)


def _signs(command: str, start: int = 0) -> list[int]:
    """Where something stands that a shell may make something of."""
    return [at for at in range(start, len(command)) if not _is_plain(command, at)]


def _is_plain(command: str, at: int) -> bool:
    character = command[at]
    return character.isprintable() if character > "\x7f" else _PLAIN.match(command, at) is not None


def _is_expected(pattern: str, command: str) -> bool:
    until = time.monotonic() + PATTERN_S
    if len(command) > LONGEST:
        return False
    if not _signs(command):
        return _fits_beginning(pattern, command, until)
    signs = [at for at in range(len(command)) if not _is_plain(command, at) or command[at] in "'\""]
    if len(signs) > _MOST_SIGNS or not _fits(pattern, command, until, in_doubt=False):
        return False
    others = (line for at in signs for line in _with_another(command, at))
    return not any(_fits(pattern, line, until, in_doubt=True) for line in others)


def _with_another(command: str, at: int) -> Iterator[str]:
    """The line with other signs instead of the one there; also instead of all like it (back-references)."""
    sign = command[at]
    for other in _OTHERS:
        if other != sign:
            yield command[:at] + other + command[at + 1 :]
            yield command.replace(sign, other)


def _fits_beginning(pattern: str, command: str, until: float) -> bool:
    import regex  # see `config.build_approvals`

    try:
        found = regex.match(pattern, command, timeout=_left(until))
    except TimeoutError:
        return False
    return found is not None and found.start() == 0 and _goes_on_plainly(command, found.end())


def _fits(pattern: str, command: str, until: float, *, in_doubt: bool) -> bool:
    import regex  # see `config.build_approvals`

    try:
        return regex.fullmatch(pattern, command, timeout=_left(until)) is not None
    except TimeoutError:
        return in_doubt


def _left(until: float) -> float:
    """Seconds until then. Raises `TimeoutError` if that is over."""
    if (left := until - time.monotonic()) <= 0:
        raise TimeoutError
    return left
