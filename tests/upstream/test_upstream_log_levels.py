"""A connection is asked for as much of the log as the most curious of those who share it wants."""

from __future__ import annotations

from nanobot.upstream.log_levels import LogLevels

SHARED = ("", "")


def test_the_most_curious_client_decides_until_it_leaves() -> None:
    levels = LogLevels()
    assert levels.least(SHARED) is None
    levels.want(("ann", "1"), SHARED, "warning")
    levels.want(("bob", "2"), SHARED, "debug")
    assert levels.least(SHARED) == "debug"
    assert levels.forget(("bob", "2")) == SHARED
    assert levels.least(SHARED) == "warning"
    levels.want(("ann", "1"), SHARED, "error")
    assert levels.least(SHARED) == "error"
    levels.forget(("ann", "1"))
    assert levels.least(SHARED) is None
    assert levels.forget(("ann", "1")) is None


def test_connections_that_are_not_shared_know_nothing_of_each_other() -> None:
    levels = LogLevels()
    levels.want(("", "1"), ("", "1"), "debug")
    levels.want(("", "2"), ("", "2"), "error")
    assert (levels.least(("", "1")), levels.least(("", "2"))) == ("debug", "error")
