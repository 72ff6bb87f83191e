"""Every command that a command line may run, as far as its text says: what a rule that refuses looks at.

A shell reads its line, and programs such as `bash -c`, `eval` and `env -S` read their words once more, and so
on. The line is therefore undone quote by quote until nothing is left to undo, and every part of every stage
at which a command could begin is a reading. Much of that is never run; that costs a refusal, no harm.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

LONGEST: Final = 4000
"""Characters of a command line that can be taken apart."""
MOST_WORDS: Final = 400
_MOST_STAGES: Final = 200
_MOST_READINGS: Final = 10_000
_MOST_ROUNDS: Final = 40

_PIECE: Final = re.compile(
    r"""
      \\\n
    | \\(?P<escaped>.)
    | \$'(?P<ansi>(?:[^'\\]|\\.)*)(?:'|\Z)
    | '(?P<single>[^']*)(?:'|\Z)
    | \$?"(?P<double>(?:[^"\\]|\\.)*)(?:"|\Z)
    | (?P<blank>[\ \t\r\f\v]+)
    | (?P<redirect>&>>?|<<<|<<-?|[<>]&|>>|>\||<>|[<>])
    | (?P<end>[;&|()`\n]+)
    | (?P<plain>[^\\'"\ \t\r\f\v<>;&|()`\n])
    """,
    re.VERBOSE | re.DOTALL,
)
_NUMBER: Final = re.compile(
    r"\\(?:x(?P<x>[0-9A-Fa-f]{1,2})|u(?P<u>[0-9A-Fa-f]{1,4})|U(?P<U>[0-9A-Fa-f]{1,8})|(?P<o>0?[0-7]{1,3}))"
)
_CODE: Final = re.compile(rf"{_NUMBER.pattern}|\\(?P<sign>.)", re.DOTALL)
_DOUBLE: Final = re.compile(r'\\(["$`\\\n])')
_RAW: Final = re.compile(r"(?!)()")
_C_QUOTE: Final = re.compile(r"\$(?=['\"])")
_SPACES: Final = {"n": "\n", "t": " ", "r": " ", "v": " ", "f": " ", "_": " ", "\n": ""}
_BLANK: Final = re.compile(r"\$\{IFS[^}]*\}|\$IFS\b")
_OTHERWISE: Final = re.compile(r"\$\{\w+:?[-=+]([^{}]*)\}", re.ASCII)
_MADE_UP: Final = re.compile(r"\$(?:\d|[A-Za-z_]\w*|[@*#?$!-]|\{[^{}]*\}|\[[^\]]*\])|`[^`]*`", re.ASCII)
_INSIDE: Final = r"(?:[^()$]|\$(?!\())"
_SUBSTITUTION: Final = re.compile(  # without one in it, its brackets in pairs
    rf"\$\((?:{_INSIDE}|\((?:{_INSIDE}|\({_INSIDE}*+\))*+\))*+\)"
)
_VARIABLE: Final = re.compile(
    r"(?:(?<=[\s;&|(`{])|\A)(?P<name>[A-Za-z_]\w*)=(?P<value>(?:'[^']*'|\"[^\"]*\"|\\.|[^\s;&|()'\"\\])*)"
    r"|\$(?:\{(?P<braced>[A-Za-z_]\w*)\}|(?P<bare>[A-Za-z_]\w*))",
    re.ASCII,
)
_CLASS: Final = re.compile(r"\[([^\]\s])\]")
_BRACES: Final = re.compile(r"\{([^{}]*(?:,|\.\.)[^{}]*)\}")
_WORD_ENDS: Final = frozenset(" \t\r\n\f\v;&|(){}")
_BEGINNING: Final = re.compile(r"[^\w.+/-]")
_OPTIONS: Final = re.compile(r"-\w*")


class Tangled(Exception):
    """There is more in a command line than is looked at."""


@dataclass(slots=True)
class _Word:
    kind: Literal["word", "end", "redirect"]
    text: str = ""


def command_readings(command: str) -> Iterator[str]:
    """The line as written, at each stage of undoing it, and each command that may begin in one.

    Raises `Tangled`: then nobody can say what it runs.
    """
    if len(command) > LONGEST or len(command.split()) > MOST_WORDS:
        raise Tangled
    count = 0
    seen: set[str] = set()
    ahead = deque([command])
    while ahead:
        stage = ahead.popleft()
        if stage in seen:
            continue
        seen.add(stage)
        if len(seen) > _MOST_STAGES or len(stage) > 2 * LONGEST:
            raise Tangled
        words = _words(stage)
        yield stage
        for simple in _simple_commands(words):
            for reading in _beginnings(simple):
                count += 1
                if count > _MOST_READINGS:
                    raise Tangled
                yield reading
        ahead += (
            _joined(words),
            _joined(_words(stage, double=_RAW)),
            _expanded(stage),
            _assigned(stage),
            _without_comments(stage),
            _decoded(stage, _NUMBER),
            _decoded(stage, _CODE),
        )


def _joined(words: list[_Word]) -> str:
    return " ".join(word.text for word in words)


def _words(text: str, double: re.Pattern[str] = _DOUBLE) -> list[_Word]:
    """Words without their quotes, and what stands between them. An open quote goes to the end.

    `double` is which backslashes between double quotes are undone: none of those in `"$(…)"`, or where the
    quotes are another language's.
    """
    words: list[_Word] = []
    is_open = False
    for piece in _PIECE.finditer(text):
        kind, found = piece.lastgroup, piece[0]
        if kind == "blank":
            is_open = False
        elif kind == "end" or kind == "redirect":
            if kind == "redirect" and is_open and words[-1].text.isdigit():
                words.pop()  # of a file descriptor
            words.append(_Word(kind, found.replace("\n", ";")))
            is_open = False
        else:
            if not is_open:
                words.append(_Word("word"))
                is_open = True
            words[-1].text += _unquoted(kind, piece, double)
    return words


def _unquoted(kind: str | None, piece: re.Match[str], double: re.Pattern[str]) -> str:
    match kind:
        case None:  # the line goes on
            return ""
        case "ansi":
            return _decoded(piece["ansi"], _CODE)
        case "double":
            return double.sub(lambda found: found[1].strip("\n"), piece["double"])
        case _:
            return piece[kind]


def _simple_commands(words: list[_Word]) -> Iterator[list[str]]:
    """The words of each simple command without its redirections, and what these lead to.

    One with a comment in it comes with and without.
    """
    simple: list[str] = []
    is_target = False
    for word in words:
        if word.kind == "redirect":
            is_target = True
            continue
        if word.kind == "end" or word.text in ("{", "}", "!"):
            yield simple
            simple = []
        elif is_target:
            yield [word.text]
        else:
            if word.text.startswith("#"):
                yield [*simple]
            simple.append(word.text)
        is_target = False
    yield simple


def _beginnings(words: list[str]) -> Iterator[str]:
    """Where a command may begin: at each word, its last name, after a sign in it, or after option letters."""
    for start, word in enumerate(words):
        rest = words[start + 1 :]
        begins = [0, *(sign.end() for sign in _BEGINNING.finditer(word))]
        if options := _OPTIONS.match(word):
            begins += range(1, options.end() + 1)
        for begin in dict.fromkeys(begins):
            for text in dict.fromkeys((word[begin:], word[begin:].rpartition("/")[2])):
                if text:
                    yield " ".join([text, *rest])


def _expanded(text: str) -> str:
    """The text with what a shell makes of it without running anything; what only that tells is left out."""
    text = _CLASS.sub(r"\1", _BLANK.sub(" ", text))
    for pattern, by in ((_OTHERWISE, r"\1"), (_MADE_UP, "")):
        for _ in range(_MOST_ROUNDS):
            text, changes = pattern.subn(by, text)
            if not changes:
                break
    inner = _SUBSTITUTION.sub("", text)
    if inner == text and "$(" in text:  # brackets that do not come in pairs
        raise Tangled
    return _without_braces(inner)


def _assigned(text: str) -> str:
    """The text with the values of the variables that it sets itself, each where it is used after that."""
    known: dict[str, str] = {}

    def value(found: re.Match[str]) -> str:
        if not found["name"]:
            return known.get(found["braced"] or found["bare"], found[0])
        made = _MADE_UP.sub("", _VARIABLE.sub(value, found["value"])).rstrip("$")
        if "$(" in made:  # what a command prints
            made = ""
        known[found["name"]] = made
        if len(made) > LONGEST:
            raise Tangled
        return found[0]

    return _VARIABLE.sub(value, text)


def _without_braces(text: str) -> str:
    """`a{b,c}d` as `abd acd`, the innermost braces first."""
    for _ in range(_MOST_ROUNDS):
        if (braces := _BRACES.search(text)) is None:
            return text
        start, end = braces.span()
        while start > 0 and text[start - 1] not in _WORD_ENDS:
            start -= 1
        while end < len(text) and text[end] not in _WORD_ENDS:
            end += 1
        before, after = text[start : braces.start()], text[braces.end() : end]
        choices = _choices(braces[1])
        if len(text) + len(choices) * (len(before) + len(after) + 1) > 2 * LONGEST:
            break
        text = text[:start] + " ".join(before + choice + after for choice in choices) + text[end:]
    raise Tangled


def _choices(inside: str) -> list[str]:
    if "," in inside:
        return inside.split(",")
    first, last, *_ = inside.split("..")
    if len(first) == len(last) == 1 and first < last < "\x7f":
        return [chr(code) for code in range(ord(first), ord(last) + 1)]
    return [first, last]


def _decoded(text: str, code: re.Pattern[str]) -> str:
    """The text with the escapes of C, as `$'…'`, `printf`, `env -S` and most languages read them."""

    def character(found: re.Match[str]) -> str:
        kind = found.lastgroup
        if kind == "sign":
            return _SPACES.get(found["sign"], found["sign"])
        number = int(found[kind or 0], 8 if kind == "o" else 16)
        return chr(number) if 0 < number < 0x110000 else ""

    return _C_QUOTE.sub("", code.sub(character, text))


def _without_comments(text: str) -> str:
    """The text without comments, whose quotes would else begin something."""
    kept: list[str] = []
    is_open, at = False, 0
    while at < len(text):
        if text[at] == "#" and not is_open:
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
        elif piece := _PIECE.match(text, at):
            is_open = piece.lastgroup not in ("blank", "end", "redirect")
            kept.append(piece[0])
            at = piece.end()
        else:
            kept.append(text[at])
            at += 1
    return "".join(kept)
