"""What an argument really says: where a path leads, and which commands a command line runs.

A rule that allows must not be talked round, so it sees one strict reading. A rule that refuses must not be
dodged, so it sees every reading there is.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nanobot.agent.approval.matching import Leaf, is_whole_match
from nanobot.config.approvals import Contains, ContainsAll, Matches, StartsWith

SHELL_SIGNS: Final = ("\n", ";", "&", "|", "`", "$(", "<", ">")
"""What can make a command line run something besides the command it begins with."""
_DEEPEST: Final = 3
LONGEST: Final = 4000
"""Characters of a command line that can be taken apart; a longer one is refused by any rule that refuses."""
MOST_WORDS: Final = 400
_WRAPPING: Final = 24
"""So many words of a simple command may belong to others that run it."""
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_BLANK: Final = re.compile(r"\$\{IFS[^}]*\}|\$IFS\b")


def real_path(text: str, folder: Path | None) -> str:
    """Absolute, without `..` and links. A `/` at the end stays: as a prefix it means something."""
    path = os.path.realpath(os.path.join(folder or Path.cwd(), text))
    return path + "/" if text.endswith("/") and not path.endswith("/") else path


def is_plain_enough(leaf: Leaf, command: str) -> bool:
    """Whether `leaf` may allow this command line, which it only knows in part.

    Every sign by which a shell runs more than one command must stand in the rule as well. A regular
    expression must then be about the whole line, and have the sign in it behind a backslash: `a|b` is not
    about a pipe, and what is ruled out by `[^\\;]` in one place may follow in another.
    """
    signs = [sign for sign in SHELL_SIGNS if sign in command]
    match leaf:
        case StartsWith(text) | Contains(str(text)):
            known = [text]
        case ContainsAll(values):
            known = [text for text in values if isinstance(text, str)]
        case Matches(pattern):
            return not signs or (
                all(_is_escaped_in(pattern, sign) for sign in signs) and is_whole_match(pattern, command)
            )
        case _:
            return True
    return not any(not any(sign in text for text in known) for sign in signs)


def is_too_long(command: str) -> bool:
    """Whether there is more in a command line than is looked at."""
    return len(command) > LONGEST or len(command.split()) > MOST_WORDS


def command_readings(command: str, depth: int = 0) -> Iterator[str]:
    """The command line as written, with its quoting undone, and each command in it, also nested ones."""
    yield command
    if depth >= _DEEPEST:
        return
    words = _words(command)
    yield " ".join(words)
    for simple in _simple_commands(words):
        while simple and _ASSIGNMENT.match(simple[0]):
            simple = simple[1:]
        if not simple:
            continue
        yield " ".join(simple)
        yield " ".join([simple[0].rpartition("/")[2], *simple[1:]])
        for start in range(1, len(simple)):
            if " " in simple[start]:
                yield from command_readings(simple[start], depth + 1)
            if start <= _WRAPPING:  # behind `sudo -u me`, `timeout 5`, `env A=1`, `xargs -n 1` and their like
                yield " ".join(simple[start:])


def _is_escaped_in(pattern: str, sign: str) -> bool:
    return "\\n" in pattern if sign == "\n" else all(f"\\{c}" in pattern for c in sign)


def _words(command: str) -> list[str]:
    text = _BLANK.sub(" ", command.replace("\\\n", "")).replace("\n", " ; ")
    text = text.replace("$(", " ; ").replace("`", " ; ")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|<>()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:  # a quote that is never closed
        return re.sub(r"[\"'\\]", "", text).split()


def _simple_commands(words: list[str]) -> Iterator[list[str]]:
    simple: list[str] = []
    for word in words:
        if word and all(c in ";&|<>(){}!" for c in word):
            yield simple
            simple = []
        else:
            simple.append(word)
    yield simple
