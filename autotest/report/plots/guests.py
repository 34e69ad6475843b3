"""Latency and loss over the number of guests, with how far the guests of a test case lie apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, NullLocator

from autotest.errors import UsageError
from autotest.report.cases import GUESTS, Case, along_guests
from autotest.report.metrics import METRICS
from autotest.report.plots.layout import Layout, Series
from autotest.report.plots.points import (
    Floats,
    Points,
    alone,
    connected,
    draw_means,
    interval_key,
    loss_scale_key,
    of_all,
    readable,
    scale_latencies,
    scale_losses,
    under_sent,
)
from autotest.report.plots.style import (
    GREY,
    PLAIN,
    Chart,
    hollow_key,
    key,
    line_style,
)

_MARGIN: Final = 1.3
"""By this factor the x axis goes on beyond the fewest and the most guests."""


def with_several_guests(cases: Sequence[Case]) -> list[Case]:
    """The test cases that make lines along the number of guests; where there is no line, all that have guests.

    UsageError where no test case with usable trials has any.
    """
    guests = [case for case in cases if case.number_of_guests]
    if not any(case.used for case in guests):
        raise UsageError("--kind guests: no test case has guests")
    return [case for line in along_guests(guests) for case in line] or guests


def _place(case: Case) -> float:
    return float(case.number_of_guests)


# -- drawing -----------------------------------------------------------------------------------------------


def _draw_latency(axes: Axes, series: Series) -> None:
    """Median with its confidence interval, the range of the guests' medians, the 99th percentile as a thin line."""
    style = line_style(series.number)
    line, apart = connected(series, _place), under_sent(series, _place)
    _draw_guests(axes, series, "p50", line, apart)
    look = {"color": style["color"], "marker": "_", "label": f"{series.label}: 99 %"}
    axes.plot(line.x, line.of("p99")[0], linestyle=style["linestyle"], linewidth=0.7, **look)
    if apart.cases:
        axes.plot(apart.x, apart.of("p99")[0], linestyle="none", **look)
    draw_means(axes, series, "p50", line, apart)


def _draw_loss(axes: Axes, series: Series) -> None:
    """Loss with its confidence interval, and the range of the guests' losses."""
    line, apart = connected(series, _place), under_sent(series, _place)
    _draw_guests(axes, series, "loss", line, apart)
    draw_means(axes, series, "loss", line, apart, highest=100)


def _draw_guests(axes: Axes, series: Series, metric: str, line: Points, apart: Points) -> None:
    """Each guest as a small point, the range from the lowest to the highest one shaded."""
    colour, label = line_style(series.number)["color"], f"{series.label}: guests"
    axes.fill_between(line.x, *_range(line, metric), color=colour, alpha=0.18, linewidth=0, label=f"{label}, range")
    for points, lone in ((line, alone(line.of(metric)[0])), (apart, np.ones(len(apart.cases), bool))):
        if lone.any():  # a band has no width where there is no neighbour
            low, high = (ends[lone] for ends in _range(points, metric))
            axes.vlines(points.x[lone], low, high, colors=colour, alpha=0.18, linewidth=6, label=f"{label}, range")
        found = [(x, value) for x, case in zip(points.x, points.cases, strict=True) for value in _each(case, metric)]
        if found:
            axes.plot(*zip(*found, strict=True), color=colour, marker=".", linestyle="none", markersize=4, alpha=0.7, label=label)


def _each(case: Case, metric: str) -> list[float]:
    return list(case.of_guests(METRICS[metric]).values())


def _range(points: Points, metric: str) -> tuple[Floats, Floats]:
    """The lowest and the highest figure of a guest; the one there is where there is a single guest. NaN without any."""
    means, _, _ = points.of(metric)
    found = [_each(case, metric) or [mean] for case, mean in zip(points.cases, means, strict=True)]
    return np.array([min(values) for values in found]), np.array([max(values) for values in found])


# -- axes --------------------------------------------------------------------------------------------------


def _drawn(layout: Layout, *metrics: str) -> list[float]:
    """Of every test case and of each of its guests."""
    found = [float(value) for metric in metrics for value in of_all(layout, metric)]
    return found + [value for case in layout.cases for value in _each(case, metrics[0])]


def _scale_latency(panels: Sequence[Axes], layout: Layout, _log: bool) -> None:
    _scale_guests(panels[0], layout)
    scale_latencies(panels[0], _drawn(layout, "p50", "p99"))


def _scale_loss(panels: Sequence[Axes], layout: Layout, log: bool) -> None:
    _scale_guests(panels[0], layout)
    scale_losses(panels[0], max(_drawn(layout, "loss"), default=0.0), log=log)


def _scale_guests(axes: Axes, layout: Layout) -> None:
    """The x axis: logarithmic, with the numbers that there are."""
    numbers = sorted({_place(case) for case in layout.cases})
    axes.set_xscale("log", base=2)
    axes.set_xlim(numbers[0] / _MARGIN, numbers[-1] * _MARGIN)
    axes.xaxis.set_major_locator(FixedLocator(readable(numbers, layout.columns)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(PLAIN)


# -- legend ------------------------------------------------------------------------------------------------


def _key(layout: Layout, median: bool, log: bool) -> list[Artist]:
    band = Patch(color=GREY, alpha=0.25, linewidth=0, label="range of the guests")
    points = key("one guest", marker=".", linestyle="none", markersize=4)
    of_latency = [key("median"), key("99th percentile", linewidth=0.7, marker="_")] if median else []
    hollow = hollow_key(layout, "less sent than offered")
    return [*of_latency, band, points, *interval_key(layout), *hollow, *([] if median else loss_scale_key(log))]


GUESTS_LATENCY: Final = Chart(
    _draw_latency,
    _scale_latency,
    lambda layout, log: _key(layout, True, log),
    lambda _: ("number of guests", f"round-trip latency [{METRICS['p50'].unit}]"),
    axis=GUESTS,
)
GUESTS_LOSS: Final = Chart(
    _draw_loss,
    _scale_loss,
    lambda layout, log: _key(layout, False, log),
    lambda _: ("number of guests", f"loss [{METRICS['loss'].unit} of the frames sent]"),
    axis=GUESTS,
)
