"""Path patterns as `.gitignore` writes them, as regular expressions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nanobot.builtin.server import ToolFailed

_MAX_LENGTH = 1000
_MAX_ALTERNATIVES = 100
_TOKENS = re.compile(r"\*+|\?|\[[!^]?\]?[^\]]*\]|\\.|[^*?\[\\]+|.", re.DOTALL)
_BRACES = re.compile(r"(?<!\\)\{([^{}]*)\}")


def path_pattern(pattern: str) -> re.Pattern[str]:
    """What matches a whole relative path (`/` between names).

    Without a slash (but at the end) the last name is matched at any depth, else the path from its start.
    `*` and `?` stay within a name, `**` does not, `{a,b}` is one of both. Matching takes no time that grows
    with more than the square of the path, whatever the pattern. Raises `ToolFailed`.
    """
    if len(pattern) > _MAX_LENGTH:
        raise ToolFailed(f"A path pattern may have {_MAX_LENGTH} characters.")
    anywhere = "/" not in pattern.rstrip("/")
    body = pattern.removeprefix("./").lstrip("/").rstrip("/")
    choices = [_path([*(["**"] if anywhere else []), *choice.split("/")]) for choice in _alternatives(body)]
    try:
        return re.compile("|".join(choices), re.DOTALL)
    except re.error as e:
        raise ToolFailed(f"{pattern!r} is not a path pattern: {e}") from None


def names_hidden(pattern: str) -> bool:
    """Whether a pattern asks for names that begin with a dot."""
    return any(name.startswith(".") and name not in (".", "..") for name in pattern.split("/"))


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """One line of a `.gitignore` in the directory `base` ("" or ending in a slash)."""

    base: str
    pattern: re.Pattern[str]
    negated: bool
    directories_only: bool

    def matches(self, path: str, is_directory: bool) -> bool:
        if (self.directories_only and not is_directory) or not path.startswith(self.base):
            return False
        return self.pattern.fullmatch(path[len(self.base) :]) is not None


def ignore_rules(text: str, base: str) -> list[IgnoreRule]:
    """The rules of a `.gitignore`; lines that cannot be read are left out, as git does."""
    rules: list[IgnoreRule] = []
    for line in text.splitlines():
        line = line if line.endswith("\\ ") else line.rstrip()
        if not line or line.startswith("#"):
            continue
        negated = line.startswith("!")
        pattern = line[1:] if negated else line
        try:
            compiled = path_pattern(pattern)
        except ToolFailed:
            continue
        rules.append(IgnoreRule(base, compiled, negated, pattern.endswith("/")))
    return rules


def is_ignored(rules: Sequence[IgnoreRule], path: str, *, is_directory: bool) -> bool:
    """Whether the last rule that matches `path` excludes it. Outer directories' rules come first."""
    for rule in reversed(rules):
        if rule.matches(path, is_directory):
            return not rule.negated
    return False


def _alternatives(pattern: str) -> list[str]:
    """The patterns that one with `{a,b}` stands for; the innermost braces are resolved first."""
    done: dict[str, None] = {}
    ahead = [pattern]
    while ahead:
        if len(ahead) + len(done) > _MAX_ALTERNATIVES:
            raise ToolFailed(f"{pattern!r} stands for more than {_MAX_ALTERNATIVES} patterns.")
        one = ahead.pop()
        if (braces := _BRACES.search(one)) is None:
            done[one] = None
        else:
            ahead += [one[: braces.start()] + choice + one[braces.end() :] for choice in braces[1].split(",")]
    return list(done)


def _path(names: list[str]) -> str:
    """`**` and the names between, each part found where it first fits: a later place never fits better."""
    parts: list[list[str]] = [[]]
    for name in names:
        if name != "**":
            parts[-1].append(_name(name))
        elif parts[-1] or len(parts) == 1:
            parts.append([])
    first, *rest = ["/".join(part) for part in parts]
    if not rest:
        return first
    *middle, last = rest
    found = (f"(?>(?:[^/]+/)*?{part}/)" for part in middle)
    return (first and first + "/") + "".join(found) + (f"(?:[^/]+/)*{last}" if last else ".+")


def _name(pattern: str) -> str:
    """One name; of several `*` each but the last stands for as little as it can."""
    pieces: list[str] = [""]
    for token in _TOKENS.findall(pattern):
        match token[0]:
            case "*":
                pieces.append("")
            case "?":
                pieces[-1] += "[^/]"
            case "[" if len(token) > 2:
                inner = token[1:-1]
                inner = "^" + inner[1:] if inner[0] == "!" else inner
                pieces[-1] += "(?!/)[" + inner.replace("\\", "\\\\").replace("[", "\\[") + "]"
            case "\\" if len(token) == 2:
                pieces[-1] += re.escape(token[1])
            case _:
                pieces[-1] += re.escape(token)
    first, *rest = pieces
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>[^/]*?{piece})" for piece in middle) + f"[^/]*{last}"
