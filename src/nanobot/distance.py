"""How far apart two words are, for guessing what somebody meant to write."""

from __future__ import annotations


def edit_distance(a: str, b: str, limit: int) -> int:
    """How many insertions, deletions, replacements and swaps of neighbours make `b` of `a`; ≤ `limit`."""
    if abs(len(a) - len(b)) >= limit:
        return limit
    before: list[int] = []
    above = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and y == a[i - 2]:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, above = above, row
    return min(above[-1], limit)
