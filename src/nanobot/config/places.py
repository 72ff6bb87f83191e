"""Where a value of a document was written, and what it names: the words in which the rest is told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written. `line` and `column` count from 1.

    `source` is a path as it was typed, or a name in parentheses for what is in no file.
    """

    source: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        if self.source.startswith("("):
            return self.source
        return f"{self.source}:{self.line}:{self.column}"


NOWHERE = Origin("(built in)", 1)


@dataclass(frozen=True, slots=True)
class Reference:
    """`server[/tool][:alias]`. `tool` is the final name, after overrides and prefix."""

    server: str
    tool: str | None = None
    alias: str | None = None

    def __str__(self) -> str:
        return self.server + (f"/{self.tool}" if self.tool else "") + (f":{self.alias}" if self.alias else "")
