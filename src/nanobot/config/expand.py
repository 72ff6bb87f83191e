"""`${NAME}` in configured text, replaced when it is used, never when it is loaded.

    ${NAME}         the variable NAME; it must be set
    ${NAME:-text}   the variable, or `text` where it is unset or empty
    ${A_${B}}       references nest and are replaced from the inside
    $${NAME}        the literal text `${NAME}`

Everything else stays as it is: a `$` before anything but `{`, a `${` that is not closed. What a variable
holds is never expanded again. `nanobot:time` is always set.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from nanobot.errors import ConfigError

log = logging.getLogger(__name__)

MAX_NESTING = 100

_TOKEN = re.compile(r"\$\$\{|\$\{|\{|\}")
_GO_TIME = re.compile(r"2006|January|Monday|-0700|Jan|Mon|MST|01|02|03|04|05|06|15|PM|3")
_GO_TIME_CODES = {
    "2006": "%Y",
    "06": "%y",
    "January": "%B",
    "Jan": "%b",
    "01": "%m",
    "02": "%d",
    "Monday": "%A",
    "Mon": "%a",
    "15": "%H",
    "03": "%I",
    "3": "%-I",
    "04": "%M",
    "05": "%S",
    "MST": "%Z",
    "-0700": "%z",
    "PM": "%p",
}


class UnsetVariable(ConfigError):
    """Text refers to a variable that has no value. `name` is the variable."""

    code = "config.unset_variable"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The variable {name!r} is not set; set it in the environment, in the env file, or with -e."
        )
        self.name = name


def expand(text: str, env: Mapping[str, str]) -> str:
    """`text` with every reference replaced from `env`. `UnsetVariable` for the first one without a value."""
    if "${" not in text:
        return text
    return _Text(text, env).render(0, len(text), 0)


def expand_or_none(text: str, env: Mapping[str, str]) -> str | None:
    """`text` expanded, None if one of its variables is not set."""
    try:
        return expand(text, env)
    except UnsetVariable:
        return None


def find_variable(name: str, env: Mapping[str, str]) -> str | None:
    """The value of `name`: exactly so, else in any case with `-` read as `_`; of several the first."""
    if name == "nanobot:time":
        return _now(env)
    if (value := env.get(name)) is not None:
        return value
    wanted = name.lower()
    similar = min((known for known in env if known.lower().replace("-", "_") == wanted), default=None)
    return None if similar is None else env[similar]


class _Text:
    """One text and where each of its references ends."""

    def __init__(self, text: str, env: Mapping[str, str]) -> None:
        self._text = text
        self._env = env
        self._ends = _reference_ends(text)

    def render(self, start: int, end: int, depth: int) -> str:
        """The part from `start` to `end` with its references replaced."""
        if depth > MAX_NESTING:
            raise ConfigError(f"References `${{…}}` are nested deeper than {MAX_NESTING} levels.")
        parts: list[str] = []
        at = start
        while (found := self._text.find("${", at, end)) >= 0:
            if found > at and self._text[found - 1] == "$":
                parts.append(self._text[at : found - 1] + "${")
                at = found + 2
            elif (close := self._ends.get(found)) is None:
                parts.append(self._text[at : found + 2])
                at = found + 2
            else:
                parts.append(self._text[at:found])
                parts.append(self._value(found + 2, close, depth + 1))
                at = close + 1
        parts.append(self._text[at:end])
        return "".join(parts)

    def _value(self, start: int, end: int, depth: int) -> str:
        mark = self._default_mark(start, end)
        name = self.render(start, end if mark is None else mark, depth)
        value = find_variable(name, self._env)
        if mark is not None:
            return value or self.render(mark + 2, end, depth)
        if value is None:
            raise UnsetVariable(name)
        return value

    def _default_mark(self, start: int, end: int) -> int | None:
        """Where `:-` stands, outside of nested references."""
        at = start
        while (mark := self._text.find(":-", at, end)) >= 0:
            if (nested := self._text.find("${", at, mark)) < 0:
                return mark
            at = self._ends.get(nested, nested + 1) + 1
        return None


def _reference_ends(text: str) -> dict[int, int]:
    """The index of the closing brace of every `${` that is closed, braces inside being balanced."""
    ends: dict[int, int] = {}
    opened: list[int | None] = []
    for token in _TOKEN.finditer(text):
        if token[0] == "}":
            if opened and (start := opened.pop()) is not None:
                ends[start] = token.start()
        else:
            opened.append(token.start() if token[0] == "${" else None)
    return ends


def _now(env: Mapping[str, str]) -> str:
    zone = UTC
    if name := env.get("TZ"):
        try:
            zone = ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            log.warning("TZ names no time zone; times are in UTC")
    now = datetime.now(zone)
    wanted = env.get("TIME_FORMAT", "")
    if not wanted:
        return now.isoformat(timespec="seconds").replace("+00:00", "Z")
    if "%" not in wanted:
        wanted = _GO_TIME.sub(lambda token: _GO_TIME_CODES[token[0]], wanted)
    return now.strftime(wanted)
