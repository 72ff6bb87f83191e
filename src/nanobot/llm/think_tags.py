"""Thinking that a model writes into its text, between `<think>` tags: told apart while it streams.

Work is proportional to the new text. What could be the beginning of a tag is held back, never dropped.
Text inside code fences is left alone.
"""

from __future__ import annotations

import re
from typing import Final

_OPENING: Final = re.compile(r"<(think|thinking|thought)\s*>", re.IGNORECASE)
_CLOSING: Final = re.compile(r"</(think|thinking|thought)\s*>", re.IGNORECASE)
_MARK: Final = re.compile(r"```|<(?=/?t|$|/$)", re.IGNORECASE)
_LOST_TAG: Final = re.compile(r"<(think|thinking|thought)(?=[^a-z0-9_\s>/.:-])", re.IGNORECASE)
_UNFINISHED: Final = re.compile(r"</?(t(h(i(n(k(i(n(g)?)?)?)?)?|o(u(g(h(t)?)?)?)?)?)?)?\s*$", re.IGNORECASE)
_BACKTICKS: Final = re.compile(r"`{1,2}$")

Piece = tuple[bool, str]
"""(is thinking, text)"""


class ThinkTags:
    """The state of one streamed text."""

    __slots__ = ("_fenced", "_held", "_orphan", "_seen_text", "_thinking", "_thought")

    def __init__(self) -> None:
        self._held = ""
        self._thinking = False
        self._fenced = False
        self._seen_text = False
        self._orphan = ""  # a closing tag without its opening one: shown only if text follows
        self._thought: list[str] | None = None  # of a block that began after visible text

    def split(self, piece: str) -> list[Piece]:
        """The visible text and the thinking that `piece` completes, in order."""
        if not (self._held or self._thinking or self._orphan) and "<" not in piece and "`" not in piece:
            self._seen_text = self._seen_text or bool(piece.strip())
            return [(False, piece)]
        return self._split(self._held + piece, at_end=False)

    def end(self) -> list[Piece]:
        """What is left when the text has ended. A block that began after visible text and was never closed
        was no thinking: its text is given as visible."""
        pieces = self._split(self._held, at_end=True)
        if self._thinking and self._thought is not None:
            pieces.append((False, "".join(self._thought)))
        return pieces

    def _split(self, text: str, *, at_end: bool) -> list[Piece]:
        pieces: list[Piece] = []
        self._held = ""
        at = 0
        while at < len(text):
            if self._thinking:
                at = self._think(text, at, pieces, at_end=at_end)
            elif self._fenced:
                end = text.find("```", at)
                stop = end + 3 if end >= 0 else len(text)
                self._fenced = end < 0
                if self._fenced and not at_end and (ticks := _BACKTICKS.search(text, at)):
                    stop = ticks.start()
                    self._held = text[stop:]
                self._show(text[at:stop], pieces)
                at = stop + len(self._held)
            else:
                at = self._plain(text, at, pieces, at_end=at_end)
        return pieces

    def _think(self, text: str, at: int, pieces: list[Piece], *, at_end: bool) -> int:
        if closing := _CLOSING.search(text, at):
            self._think_text(text[at : closing.start()], pieces)
            self._thinking, self._thought = False, None
            return closing.end()
        stop = len(text)
        if not at_end and (tail := _UNFINISHED.search(text, at)):
            stop = tail.start()
            self._held = text[stop:]
        self._think_text(text[at:stop], pieces)
        return len(text)

    def _plain(self, text: str, at: int, pieces: list[Piece], *, at_end: bool) -> int:
        mark = _MARK.search(text, at)
        start = mark.start() if mark else len(text)
        if not mark and not at_end and (ticks := _BACKTICKS.search(text, at)):
            self._held = text[ticks.start() :]
            start = ticks.start()
        self._show(text[at:start], pieces)
        if not mark:
            return len(text)
        if mark[0] == "```":
            self._fenced = True
            self._show("```", pieces)
            return start + 3
        if opening := _OPENING.match(text, start):
            self._thinking = True
            self._thought = [] if self._seen_text else None
            return opening.end()
        if closing := _CLOSING.match(text, start):
            if self._seen_text:
                self._orphan += closing[0]
            return closing.end()
        if lost := _LOST_TAG.match(text, start):
            return lost.end()
        if not at_end and _UNFINISHED.match(text, start):
            self._held = text[start:]
            return len(text)
        self._show("<", pieces)
        return start + 1

    def _show(self, text: str, pieces: list[Piece]) -> None:
        if not text:
            return
        if self._orphan and text.isspace():
            self._orphan += text
            return
        text, self._orphan = self._orphan + text, ""
        self._seen_text = self._seen_text or not text.isspace()
        pieces.append((False, text))

    def _think_text(self, text: str, pieces: list[Piece]) -> None:
        if not text:
            return
        if self._thought is not None:
            self._thought.append(text)
        pieces.append((True, text))
