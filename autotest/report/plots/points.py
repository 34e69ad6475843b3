"""Points along an axis: figures over the repetitions with their confidence intervals, and the axes of latency and loss.

The figures are those of :meth:`Case.estimate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from autotest.report.cases import Case
from autotest.report.metrics import METRICS
from autotest.report.plots.layout import Layout, Series
from autotest.report.plots.style import PLAIN, hollow, key, line_style

Floats = NDArray[np.float64]

_LEAST_LOSS: Final = 0.001
"""Per cent; on a logarithmic axis of the loss the scale is linear below."""


@dataclass(frozen=True)
class Points:
    """Figures of test cases over their places on the x axis; NaN where there is none."""

    x: Floats
    cases: tuple[Case, ...]

    def of(self, metric: str) -> tuple[Floats, Floats, Floats]:
        """Mean over the repetitions, lower and upper end of its confidence interval."""
        found = [case.estimate(METRICS[metric]) for case in self.cases]
        rows = [(one.mean, one.low, one.high) if one else (None, None, None) for one in found]
        mean, low, high = np.array(rows, dtype=float).reshape(-1, 3).T
        return mean, low, high


def connected(series: Series, place: Callable[[Case], float]) -> Points:
    """The points of the line, with a gap where one is missing or under-sent, so that no line leads past it."""
    cases = sorted(series.cases, key=place)
    whole = tuple(Case(case.parameters, case.trials, ()) if case.under_sent else case for case in cases)
    return Points(np.array([place(case) for case in cases]), whole)


def under_sent(series: Series, place: Callable[[Case], float]) -> Points:
    """The under-sent points, to which no line leads."""
    cases = tuple(case for case in series.cases if case.under_sent)
    return Points(np.array([place(case) for case in cases]), cases)


def draw_means(axes: Axes, series: Series, metric: str, line: Points, apart: Points, highest: float = np.inf) -> None:
    """The line, the hollow points apart from it, and bars over their confidence intervals, within 0 and ``highest``."""
    label = f"{series.label}: {METRICS[metric].label}"
    style = line_style(series.number)
    axes.plot(line.x, line.of(metric)[0], markersize=5, linewidth=1.6, label=label, **style)
    if apart.cases:
        axes.plot(apart.x, apart.of(metric)[0], label=f"{label}, under-sent", **hollow(series.number))
    for points in (line, apart):
        mean, low, high = points.of(metric)
        known = np.isfinite(low)
        if known.any():
            reach = [(mean - np.maximum(low, 0))[known], (np.minimum(high, highest) - mean)[known]]
            bars = {"fmt": "none", "ecolor": style["color"], "elinewidth": 0.9, "capsize": 2.5}
            axes.errorbar(points.x[known], mean[known], yerr=reach, label=f"{label}, interval", **bars)


def alone(values: Floats) -> NDArray[np.bool_]:
    """Which points have no neighbour that a line could lead to."""
    known = np.concatenate(([False], np.isfinite(values), [False]))
    return known[1:-1] & ~known[:-2] & ~known[2:]


def of_all(layout: Layout, metric: str) -> Floats:
    """A figure of every test case that has it."""
    mean, _, _ = Points(np.empty(0), tuple(layout.cases)).of(metric)
    return mean[np.isfinite(mean)]


# -- axes --------------------------------------------------------------------------------------------------


def scale_latencies(axes: Axes, drawn: Sequence[float]) -> None:
    """A logarithmic y axis for these values."""
    axes.set_yscale("log")
    if not drawn:
        return
    low, high = min(drawn), max(drawn)
    # About a decade at least: no mountains out of a few per cent, and always two labelled ticks.
    middle = (low * high) ** 0.5
    axes.set_ylim(min(low / 1.4, middle / 3), max(high * 1.4, middle * 3))
    label_decades(axes)


def scale_losses(axes: Axes, highest: float, *, log: bool) -> None:
    """A y axis in per cent that has room for that one."""
    top = min(100.0, max(1.0, 1.08 * highest))  # not less than 1 %: no mountains out of single frames
    if not log:
        axes.set_ylim(-0.02 * top, 1.02 * top)
        return
    axes.set_yscale("symlog", linthresh=_LEAST_LOSS, linscale=0.5)
    axes.set_ylim(-_LEAST_LOSS / 5, 1.3 * top)
    axes.yaxis.set_major_locator(FixedLocator([0, *(10.0**power for power in range(-3, 3))]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PLAIN)


def label_decades(axes: Axes) -> None:
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(PLAIN)
    axes.yaxis.set_minor_formatter(NullFormatter())


def readable(ticks: list[float], columns: int) -> list[float]:
    """Those that leave each other room on a logarithmic axis, the last one always."""
    apart = (ticks[-1] / ticks[0]) ** (0.05 if columns == 1 else 0.05 * columns)
    kept = ticks[-1:]
    for tick in reversed(ticks[:-1]):
        if kept[-1] >= tick * apart:
            kept.append(tick)
    return kept[::-1]


# -- legend ------------------------------------------------------------------------------------------------


def interval_key(layout: Layout) -> list[Artist]:
    if all(len(case.used) < 2 for case in layout.cases):
        return []
    return [key("95 % confidence interval", marker="|", markersize=9, linestyle="none", markeredgewidth=0.9)]


def loss_scale_key(log: bool) -> list[Artist]:
    return [key(f"scale: linear below {_LEAST_LOSS} %", linestyle="none")] if log else []
