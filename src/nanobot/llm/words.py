"""Text cut into words, as models of ours stream it."""

from __future__ import annotations


def words(text: str) -> list[str]:
    """`text` cut before each word; joined they are `text` again."""
    pieces: list[str] = []
    start = 0
    for at in range(1, len(text)):
        if text[at - 1].isspace() and not text[at].isspace():
            pieces.append(text[start:at])
            start = at
    return [*pieces, text[start:]] if text else []
