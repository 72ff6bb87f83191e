"""Where a path leads, however it is spelled, and what else a text may be read as.

A rule that allows sees one strict reading of a path: where it leads. A rule that refuses sees every reading
there is, and what a tool finds below it. Where only a server knows what a text is, it may be a path too.
"""

from __future__ import annotations

import os
import posixpath
import re
import unicodedata
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from nanobot.agent.approval.matching import Leaf, holds, is_meant, with_texts
from nanobot.config.approvals import AllOf, AnyOf, Equals, In, Matcher, StartsWith

_LONGEST_PATH: Final = 10_000
_SLASHES: Final = re.compile(r"[/\\]")


def allows_path(matcher: Matcher, path: str, folder: Path | None) -> bool:
    """Whether the place that `path` leads to is meant. Raises `ValueError` for what can be no path."""
    real = _real(path, folder)
    return holds(_rebased(matcher, folder), lambda leaf: is_meant(leaf, real, in_doubt=False))


def refuses_path(matcher: Matcher, path: str, folder: Path | None, *, goes_below: bool) -> bool:
    """Whether `path` is meant in any spelling, or leads to a folder whose inside is meant.

    `goes_below`: the tool works on everything below the path. Raises `ValueError` for what can be no path.
    """
    real, rebased = _real(path, folder), _rebased(matcher, folder)
    folded = with_texts(rebased, _folded)
    readings = [(matcher, path), (matcher, real), (rebased, real), (folded, _folded(real))]
    return any(
        holds(one, lambda leaf, text=text: is_meant(leaf, text, in_doubt=True))
        for one, whole in readings
        for text in (whole, whole.rstrip("/") or "/", whole.rstrip("/") + "/")
    ) or (goes_below and _lies_below(folded, _folded(real).rstrip("/") + "/"))


def allows_text(matcher: Matcher, text: str) -> bool:
    """Whether a text is meant. One that may climb out of where it begins must be named as a whole."""
    climbs = ".." in _SLASHES.split(unquote(text))

    def allows(leaf: Leaf) -> bool:
        return (not climbs or isinstance(leaf, Equals | In)) and is_meant(leaf, text, in_doubt=False)

    return holds(matcher, allows)


def refuses_text(matcher: Matcher, text: str) -> bool:
    """Whether a text is meant, also if it is a path or an address in another spelling."""
    plain = unquote(text)
    spellings = dict.fromkeys((text, plain, plain.partition("://")[2] or plain))
    texts = [*spellings, *map(_tidied, spellings)]
    readings = [(matcher, one) for text in texts for one in (text, text.rstrip("/") + "/")]
    if _SLASHES.search(plain):
        folded = with_texts(matcher, _folded)
        readings += [(folded, _folded(one)) for _, one in readings]
    return any(
        holds(one, lambda leaf, read=read: is_meant(leaf, read, in_doubt=True)) for one, read in readings
    )


def _tidied(text: str) -> str:
    """As a path without `.`, `..` and doubled slashes, as far as the text tells."""
    return re.sub("^//+", "/", posixpath.normpath(text.replace("\\", "/"))) if text else text


def _lies_below(matcher: Matcher, folder: str) -> bool:
    """Whether something in `folder` is meant. Expressions and parts of a path do not say where."""
    match matcher:
        case AnyOf(matchers) | AllOf(matchers):
            return any(_lies_below(one, folder) for one in matchers)
        case StartsWith(text) | Equals(str(text)):
            return text.startswith(folder)
        case In(values):
            return any(isinstance(value, str) and value.startswith(folder) for value in values)
        case _:
            return False


def _rebased(matcher: Matcher, folder: Path | None) -> Matcher:
    """With the paths it names as they lead; `~` in a rule is the home of whoever runs this."""
    return with_texts(matcher, lambda text: _real(os.path.expanduser(text), folder))


def _real(text: str, folder: Path | None) -> str:
    """Absolute, without `..` and links. A `/` at the end stays: as a prefix it means something."""
    if len(text) > _LONGEST_PATH:
        raise ValueError("this is too long for a path")
    path = os.path.realpath(os.path.join(folder or Path.cwd(), text))
    return path + "/" if text.endswith("/") and not path.endswith("/") else path


def _folded(path: str) -> str:
    """Equal for two spellings that some file systems take for one: case, and how accents are composed."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
