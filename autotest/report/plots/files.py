"""From test cases to plot files: what is drawn, what its caption says, what its file is called."""

from __future__ import annotations

import hashlib
import io
import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import matplotlib
from matplotlib.figure import Figure

from autotest.errors import ResultsError, UsageError
from autotest.report.cases import GUESTS, LOAD, Case, count_left_out, shown
from autotest.report.plots import DEFAULT_KINDS, KINDS, View
from autotest.report.plots.figure import CHARTS, draw
from autotest.report.plots.guests import with_several_guests
from autotest.report.plots.layout import Layout, arrange, check_names, listed
from autotest.report.plots.load import achieved
from autotest.report.plots.style import COLOURS, DISTINCT, RC
from autotest.results.files import make_directory, write_atomically
from autotest.results.verdicts import Verdict

log = logging.getLogger(__name__)

MAX_DISTRIBUTIONS: Final = 12
"""Lines in one panel of a CDF or a histogram: they cross and overlap."""
_DPI = 200
_LONGEST_NAME = 150
_MOST_NAMED = 6


@dataclass(frozen=True)
class Origin:
    """Where the test cases of a plot come from, for its caption and its file's name.

    Attributes:
        directory: that holds the results.
        selections: of which the trials are the union, as the user wrote them; empty: everything.
        accepted: verdicts that count like ``valid``.
    """

    directory: Path
    selections: tuple[str, ...] = ()
    accepted: frozenset[Verdict] = frozenset()


def draw_plots(cases: Sequence[Case], kinds: Collection[str], view: View, origin: Origin) -> dict[str, Figure]:
    """Figures by the names of their files, without the suffix.

    Raises:
        UsageError: there is no such parameter, there are more lines or panels than can be told apart, or trials of
            several testbeds.
        ResultsError: no test case has figures, or a histogram cannot be read.
    """
    if not any(case.used for case in cases):
        verdicts = ", ".join(dict.fromkeys(case.verdicts() for case in cases)) or "no trials"
        raise ResultsError(f"{origin.directory}: nothing to draw, no trial is valid or under-sent: {verdicts}")
    testbeds = _testbeds(cases)
    if len(testbeds) > 1:
        raise UsageError(
            f"{origin.directory}: trials of the testbeds {', '.join(testbeds)} do not belong into one plot: "
            f"select one of them, like --select testbed={testbeds[0]}"
        )
    layouts = {kind: _layout(kind, cases, view) for kind in kinds}  # all of them, before anything takes time
    for kind, layout in layouts.items():
        _warn_of_crowd(kind, layout)
    return {
        _name(kind, view, origin): draw(kind, layout, _caption(layout, cases, origin), log=view.log)
        for kind, layout in layouts.items()
    }


def default_kinds(cases: Sequence[Case], view: View) -> tuple[str, ...]:
    """What is drawn where nobody says what: along the number of guests only where there are several and no panel would be
    overcrowded.
    """
    numbers = {case.number_of_guests for case in cases if case.used} - {0}
    if len(numbers) < 2 or GUESTS in (*view.by, view.beside):
        return DEFAULT_KINDS
    try:
        _layout(GUESTS, cases, view)
    except UsageError as error:
        log.warning("not drawn: %s", error)
        return DEFAULT_KINDS
    return (*DEFAULT_KINDS, GUESTS)


def write_plots(figures: dict[str, Figure], directory: Path, formats: Sequence[str]) -> list[Path]:
    """Write each figure in each format; returns the files. The same figures give the same files, byte by byte.

    Raises:
        ResultsError: a file cannot be written.
    """
    written = []
    for name, figure in figures.items():
        for suffix in formats:
            path = directory / f"{name}.{suffix}"
            try:
                make_directory(directory)
                write_atomically(path, _rendered(figure, suffix))
            except OSError as error:
                raise ResultsError(f"{path}: cannot be written: {error.strerror}") from error
            written.append(path)
    return written


def _layout(kind: str, cases: Sequence[Case], view: View) -> Layout:
    axis = CHARTS[kind][0].axis
    check_names(cases, [*view.by, *filter(None, [view.beside])])
    if axis and axis in (*view.by, view.beside):
        others = ", ".join(other for other, (chart, *_) in CHARTS.items() if chart.axis != axis)
        raise UsageError(f"{axis} is the x axis of --kind {kind}: it tells lines apart only in --kind {others}")
    layout = arrange(with_several_guests(cases) if axis == GUESTS else cases, view.by, view.beside, axis=axis)
    lines = layout.most_series
    most = DISTINCT if axis else MAX_DISTRIBUTIONS
    if lines > most:
        crowd = f"{KINDS[kind]}: {lines} lines in one panel are more than can be told apart (at most {most})"
        raise UsageError(f"{crowd}; {_remedy(layout)}")
    return layout


def _warn_of_crowd(kind: str, layout: Layout) -> None:
    lines = layout.most_series
    if lines > len(COLOURS) and layout.axis:
        log.warning("%s: %d lines in one panel are hard to tell apart; %s", KINDS[kind], lines, _remedy(layout))


def _remedy(layout: Layout) -> str:
    return f"limit what differs with --select, or use some of it as --by or --side-by-side: {listed(layout.cases, layout.differ)}"


def _caption(layout: Layout, everything: Sequence[Case], origin: Origin) -> str:
    """What has to be known to cite the plot of some of these test cases."""
    cases = layout.cases
    name, same = origin.directory.resolve().name, shown(layout.constants)
    name += f" (testbed {testbed})" if (testbed := "".join(_testbeds(cases))) else ""
    repetitions = _range([len(case.used) for case in cases], "repetition")
    samples = _range([case.samples for case in cases], "latency sample")
    parts = [f"{name}: {same}." if same else f"{name}."]
    if layout.axis:
        parts.append(f"Each point: {repetitions}, {samples}, mean over the repetitions (interval: Student's t).")
    else:
        parts.append(f"Each line: {repetitions}, {samples}, of all repetitions together.")
    if layout.axis != LOAD:
        parts += _under_sent(layout)
    elif any(not case.load for case in cases):
        parts.append("Offered rate 0 is as fast as possible and is drawn at the achieved rate.")
    if origin.selections:
        parts.append(f"Selected: {' or '.join(origin.selections)}.")
    if origin.accepted:
        parts.append(f"Accepted like valid: {', '.join(sorted(origin.accepted))}.")
    if left_out := count_left_out(cases):
        parts.append(f"Trials left out: {left_out}.")
    if layout.axis == GUESTS and (others := sum(bool(case.used) for case in everything) - len(cases)):
        parts.append(f"Not drawn, for want of another number of guests: {_count(others, 'test case')}.")
    if layout.missing:
        parts.append(f"Not drawn, for want of a valid trial: {_count(layout.missing, 'test case')}.")
    return " ".join(parts)


def _under_sent(layout: Layout) -> list[str]:
    """What was sent instead, where no axis shows it."""
    names = [*layout.differ, *filter(None, [layout.axis])]
    found = [f"{shown(case.parameters, names)} sent {achieved(case):.4g}" for case in layout.cases if case.under_sent]
    if len(found) > _MOST_NAMED:
        found = [*found[:_MOST_NAMED], f"and {len(found) - _MOST_NAMED} others"]
    return [f"Under-sent [kpps]: {'; '.join(found)}."] if found else []


def _testbeds(cases: Sequence[Case]) -> list[str]:
    """Where the trials were measured, as far as that is recorded."""
    return sorted({trial.testbed for case in cases for trial in case.used} - {""})


def _range(numbers: Sequence[int], what: str) -> str:
    low, high = min(numbers), max(numbers)
    return _count(low, what) if low == high else f"{low} to {_count(high, what)}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _name(kind: str, view: View, origin: Origin) -> str:
    """What tells one plot from another: ``load_latency_by-vhost_interface-bridge+macvtap``.

    Where a name would be too long, or has characters that do not belong into one, a checksum of all of it tells it apart.
    """
    parts = [KINDS[kind]]
    if view.by:
        parts.append(f"by-{'+'.join(view.by)}")
    if view.beside:
        parts.append(f"beside-{view.beside}")
    if view.log:
        parts.append("log")
    if origin.selections:
        parts.append("_or_".join(origin.selections))
    if origin.accepted:
        parts.append(f"accept-{'+'.join(sorted(origin.accepted))}")
    exact = "_".join(parts)
    plain = exact.replace("=", "-").replace(",", "+").replace(" ", "_").replace("..", "to")
    name = re.sub(r"[^A-Za-z0-9+_-]", "-", plain)
    if name == plain and len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}_{hashlib.sha256(exact.encode()).hexdigest()[:8]}"


def _rendered(figure: Figure, suffix: str) -> bytes:
    buffer = io.BytesIO()
    date = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(suffix)  # no two runs are at the same time
    with matplotlib.rc_context(RC):
        figure.savefig(buffer, format=suffix, dpi=_DPI, metadata=date)
    return buffer.getvalue()
