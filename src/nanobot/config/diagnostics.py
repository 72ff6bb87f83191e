"""What is wrong with a configuration: every finding, at its place, never only the first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from nanobot.config.places import Origin
from nanobot.errors import ConfigError

Severity = Literal["error", "warning", "info"]

_SHOWABLE = re.compile(r"[A-Za-z0-9_./:-]{1,64}")


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `path` is the dotted place in the document, "" for the document as a whole."""

    severity: Severity
    code: str
    message: str
    origin: Origin
    path: str = ""
    hint: str = ""

    def __str__(self) -> str:
        where = f" {self.path}" if self.path else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.origin}: {self.severity}[{self.code}]{where}: {self.message}{hint}"

    def as_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "severity": self.severity,
            "code": self.code,
            "source": self.origin.source,
            "line": self.origin.line,
            "column": self.origin.column,
            "path": self.path,
            "message": self.message,
        }
        return shown | {"hint": self.hint} if self.hint else shown


class InvalidConfig(ConfigError):
    """A configuration with at least one error. `diagnostics` also holds its warnings, `str()` shows all."""

    code = "config.invalid"

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(["The configuration cannot be used:", *map(str, self.diagnostics)]))


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a document on the way down, and where to report what is found there."""

    found: Diagnostics
    path: str = ""

    def key(self, name: str) -> Place:
        """The entry `name`. A name that could be anything (a pasted secret, say) is not repeated."""
        shown = name if _SHOWABLE.fullmatch(name) else "<…>"
        return Place(self.found, f"{self.path}.{shown}" if self.path else shown)

    def item(self, index: int) -> Place:
        return Place(self.found, f"{self.path}[{index}]")

    def error(self, code: str, at: Origin, message: str, hint: str = "") -> None:
        self.found.add("error", code, at, message, path=self.path, hint=hint)

    def warning(self, code: str, at: Origin, message: str, hint: str = "") -> None:
        self.found.add("warning", code, at, message, path=self.path, hint=hint)

    def info(self, code: str, at: Origin, message: str) -> None:
        self.found.add("info", code, at, message, path=self.path)


class Diagnostics:
    """Collects the findings of one load."""

    def __init__(self) -> None:
        self._found: dict[Diagnostic, None] = {}
        self._order: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._found)

    def source(self, name: str) -> None:
        """Findings are listed in the order in which their sources were announced here."""
        self._order.setdefault(name, len(self._order))

    def add(
        self, severity: Severity, code: str, at: Origin, message: str, *, path: str = "", hint: str = ""
    ) -> None:
        self._found[Diagnostic(severity, code, message, at, path, hint)] = None

    @property
    def has_errors(self) -> bool:
        return any(diagnostic.severity == "error" for diagnostic in self._found)

    @property
    def root(self) -> Place:
        return Place(self)

    def sorted(self, *, strict: bool = False) -> tuple[Diagnostic, ...]:
        """All findings by source, line and path. `strict` makes errors of warnings."""
        found: Iterable[Diagnostic] = self._found
        if strict:
            found = [replace(d, severity="error") if d.severity == "warning" else d for d in found]
        last = len(self._order)
        return tuple(
            sorted(found, key=lambda d: (self._order.get(d.origin.source, last), d.origin.line, d.path))
        )
