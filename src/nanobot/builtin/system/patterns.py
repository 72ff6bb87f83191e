"""Path patterns as `.gitignore` writes them, as regular expressions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nanobot.builtin.server import ToolFailed

_MAX_LENGTH = 1000
_TOKENS = re.compile(
    r"/\*\*/|^\*\*/|/\*\*$|^\*\*$|\*+|\?|\[[!^]?\]?[^\]]*\]|\\.|[{},]|[^*?\[\\{},/]+|.", re.DOTALL
)


def path_pattern(pattern: str) -> re.Pattern[str]:
    """What matches a whole relative path (`/` between names).

    Without a slash (but at the end) the last name is matched at any depth, else the path from its start.
    `*` and `?` stay within a name, `**` does not, `{a,b}` is one of both. Raises `ToolFailed`.
    """
    if len(pattern) > _MAX_LENGTH:
        raise ToolFailed(f"A path pattern may have {_MAX_LENGTH} characters.")
    anywhere = "/" not in pattern.rstrip("/")
    body = pattern.removeprefix("./").lstrip("/").rstrip("/")
    try:
        return re.compile(("(?:.*/)?" if anywhere else "") + _translated(body), re.DOTALL)
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


def _translated(pattern: str) -> str:
    parts: list[str] = []
    depth = 0
    for token in _TOKENS.findall(pattern):
        match token:
            case "/**/":
                parts.append("/(?:.*/)?")
            case "**/":
                parts.append("(?:.*/)?")
            case "/**":
                parts.append("/.*")
            case "?":
                parts.append("[^/]")
            case "{":
                depth += 1
                parts.append("(?:")
            case "}" if depth:
                depth -= 1
                parts.append(")")
            case "," if depth:
                parts.append("|")
            case _ if token == "**" and pattern == "**":
                parts.append(".*")
            case _ if token[0] == "*":
                parts.append("[^/]*")
            case _ if token[0] == "[" and len(token) > 2:
                inner = token[1:-1]
                inner = "^" + inner[1:] if inner[0] == "!" else inner
                parts.append("(?!/)[" + inner.replace("\\", "\\\\").replace("[", "\\[") + "]")
            case _ if token[0] == "\\" and len(token) == 2:
                parts.append(re.escape(token[1]))
            case _:
                parts.append(re.escape(token))
    return "".join(parts) + ")" * depth
