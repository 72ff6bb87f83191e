"""Who is there: what is held open for clients is told when they come and when they go."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from nanobot.ids import new_id


class Attendance(Protocol):
    """Told which sessions are in memory, so that what is held open for one of them goes when it goes.

    What it takes to go on later (`continuations`, JSON by name) is kept with the session.
    """

    def began(self, account: str, session: str) -> None: ...

    def ended(self, account: str, session: str, *, is_over: bool = True) -> None:
        """With `is_over` False the session may come back."""
        ...

    def continuations(self, account: str, session: str) -> Mapping[str, Any]: ...

    def continue_with(self, account: str, session: str, kept: Mapping[str, object]) -> None:
        """A session that is about to begin comes back with its `continuations`."""
        ...


@contextmanager
def attending(attendance: Attendance | None, account: str, session: str | None = None) -> Generator[None]:
    """A client of `account` is there during the block, by whatever way it came: with a `session`, or without
    one (None). Then what the account uses without a session stays open."""
    if attendance is None:
        yield
        return
    session = session or new_id("present")
    attendance.began(account, session)
    try:
        yield
    finally:
        attendance.ended(account, session)
