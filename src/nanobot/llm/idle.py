"""How long a provider may be silent."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Final

log = logging.getLogger(__name__)

VARIABLE: Final = "NANOBOT_STREAM_IDLE_TIMEOUT_S"
DEFAULT_S: Final = 90.0
LONGEST_S: Final = 3600.0


def stream_idle_s(env: Mapping[str, str]) -> float:
    """Seconds of `NANOBOT_STREAM_IDLE_TIMEOUT_S`: 90 unless it is a positive number, at most 3600."""
    written = env.get(VARIABLE, "").strip()
    if not written:
        return DEFAULT_S
    try:
        seconds = float(written)
    except ValueError:
        seconds = math.nan
    if math.isnan(seconds) or seconds <= 0:
        log.warning("the idle timeout is no positive number", extra={"variable": VARIABLE, "used": DEFAULT_S})
        return DEFAULT_S
    if seconds > LONGEST_S:
        log.warning("the idle timeout is too long", extra={"variable": VARIABLE, "used": LONGEST_S})
        return LONGEST_S
    return seconds


def idle_reader(env: Mapping[str, str]) -> Callable[[], float]:
    """A function that gives the current value at each request, and warns of a bad one once."""
    known: tuple[str, float] | None = None

    def read() -> float:
        nonlocal known
        written = env.get(VARIABLE, "")
        if known is None or known[0] != written:
            known = (written, stream_idle_s(env))
        return known[1]

    return read
