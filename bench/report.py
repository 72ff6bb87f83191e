"""How a figure is printed: what was measured, against which baseline, and the bound it should keep."""

from __future__ import annotations

import statistics


def ratio(
    what: str, value: float, baseline: str, base: float, *, at_least: float = 0, at_most: float = 0
) -> None:
    """One line: `value / base` and whether it keeps its bound. Units are those of the names."""
    found = value / base
    bound = f">= {at_least:g}" if at_least else f"<= {at_most:g}"
    kept = found >= at_least if at_least else found <= at_most
    print(
        f"{'ok  ' if kept else 'MISS'} {what}: {value:,.4g} against {baseline}: {base:,.4g} "
        f"-> ratio {found:.2f} (bound {bound})",
        flush=True,
    )


def rounds(what: str, ours: list[float], baseline: str, base: list[float], *, at_least: float) -> None:
    """As `ratio`, from figures of several rounds: the median of the ratios within each."""
    found = statistics.median(a / b for a, b in zip(ours, base, strict=True))
    value, other = statistics.median(ours), statistics.median(base)
    kept = "ok  " if found >= at_least else "MISS"
    print(
        f"{kept} {what}: {value:,.4g} against {baseline}: {other:,.4g} "
        f"-> ratio {found:.2f} (bound >= {at_least:g})",
        flush=True,
    )


def figure(what: str, value: float, unit: str, *, at_most: float) -> None:
    """One line for an absolute bound."""
    print(
        f"{'ok  ' if value <= at_most else 'MISS'} {what}: {value:,.4g} {unit} (bound <= {at_most:g})",
        flush=True,
    )


def plain(what: str, value: float, unit: str) -> None:
    """One line without a bound, for the reader."""
    print(f"     {what}: {value:,.4g} {unit}", flush=True)
