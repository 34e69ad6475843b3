"""The summary of an output directory: one row per test case, as data and as a plain-text table."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from autotest.report.cases import Case, Spread, load_cases, setup_name
from autotest.report.tables import render_table

_UNITS = {"offered": "kpps", "achieved": "kpps", "loss": "%", "median": "µs", "p99": "µs"}
_HEADER = (*(f"{title}\n[{unit}]" for title, unit in _UNITS.items()), "samples", "rep.", "verdict")
_ALIGN = "rllllrrl"
_NOTE = """\
Percentiles: nearest rank, of the samples of all valid repetitions together. ±: the largest distance
of one repetition from that. rep.: repetitions used/there. A case without a valid repetition shows
its under-sent ones, if any."""


def summarise(outputdir: Path, infixes: Iterable[str] | None = None) -> list[Case]:
    """One row per load latency test case, as :func:`~autotest.report.cases.load_cases` selects and orders them."""
    return load_cases(outputdir, infixes)


def render_summary(cases: list[Case]) -> str:
    """The table as text, one block of rows per set-up; ends with a newline."""
    if not cases:
        return "no load latency trials\n"
    columns = [
        [str(case.parameters.rate) for case in cases],
        _spreads([case.achieved_kpps for case in cases], 1),
        _spreads([case.loss for case in cases], 100),
        _spreads([case.percentile_ns(50) for case in cases], 1e-3),
        _spreads([case.percentile_ns(99) for case in cases], 1e-3),
        [str(case.samples) if case.used else "-" for case in cases],
        [f"{len(case.used)}/{len(case.repetitions)}" for case in cases],
        [case.verdicts() for case in cases],
    ]
    lines = render_table(_HEADER, list(zip(*columns, strict=True)), align=_ALIGN)
    blocks, rows = lines[:2], iter(lines[2:])
    for setup, members in groupby(cases, key=lambda case: case.setup):
        blocks += ["", setup_name(setup), *(next(rows) for _ in members)]
    return "\n".join([*blocks, "", _NOTE]) + "\n"


def _spreads(spreads: list[Spread | None], factor: float) -> list[str]:
    """Cells of a column: the values right-aligned, then the spread between repetitions where it shows."""
    cells = [_shown(spread, factor) for spread in spreads]
    width = max(len(value) for value, _ in cells)
    return [f"{value.rjust(width)} {between}".rstrip() for value, between in cells]


def _shown(spread: Spread | None, factor: float) -> tuple[str, str]:
    if spread is None:
        return "-", ""
    value = spread.value * factor
    away = max(spread.high - spread.value, spread.value - spread.low) * factor
    decimals = _decimals(value or away)
    if 0 < value < 0.0001:
        return "<0.0001", ""
    between = f"{away:.{decimals}f}"
    return f"{value:.{decimals}f}" if value else "0", f"±{between}" if float(between) else ""


def _decimals(value: float) -> int:
    """How many decimals give three digits that count; none from 100 on, at most four."""
    return next((places for least, places in ((100, 0), (10, 1), (1, 2), (0.1, 3)) if value >= least), 4)
