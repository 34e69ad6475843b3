"""Distributions of the latency: of the samples of all used repetitions together, as ``acc_histogram`` has them."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10
from typing import Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter
from numpy.typing import NDArray

from autotest.report.plots.layout import Layout, Series
from autotest.report.plots.style import (
    PLAIN,
    Chart,
    hollow,
    hollow_key,
    key,
    line_style,
)

Floats = NDArray[np.float64]

BINS_PER_DECADE: Final = 20
_MARKED = (25, 50, 75)
"""Percentiles at which a line has its marker."""
_LATENCY = "round-trip latency [µs]"


def _draw_cdf(axes: Axes, series: Series) -> None:
    """The share of samples that are not above a latency, marked at the quartiles."""
    histogram = series.cases[0].histogram()
    values = np.maximum(histogram.values, 1) / 1000
    shares = 100 * np.cumsum(histogram.counts) / histogram.samples
    style = line_style(series.number)
    axes.step(
        np.concatenate((values[:1], values)),
        np.concatenate(([0.0], shares)),
        where="post",
        color=style["color"],
        linestyle=style["linestyle"],
        linewidth=1.4,
        label=series.label,
    )
    marked = np.array(histogram.percentiles(_MARKED), dtype=float) / 1000
    _draw_marks(axes, series, marked, np.array(_MARKED, dtype=float))


def _draw_histogram(axes: Axes, series: Series) -> None:
    """The share of the samples in bins of one width on a logarithmic axis, the same in every plot; marked at the highest.

    Shares and not counts: a line of which a repetition is left out would look flatter than the others.
    """
    histogram = series.cases[0].histogram()
    values = np.maximum(histogram.values, 1)
    first, last = (floor(log10(value) * BINS_PER_DECADE) for value in (values[0], values[-1]))
    edges = 10.0 ** (np.arange(first, last + 2) / BINS_PER_DECADE)
    edges[-1] = max(edges[-1], values[-1])  # whatever the powers are rounded to, each sample is in a bin
    edges[0] = min(edges[0], values[0])
    counts, _ = np.histogram(values, edges, weights=histogram.counts)
    shares = 100 * counts / histogram.samples
    style = line_style(series.number)
    edges /= 1000
    axes.stairs(shares, edges, color=style["color"], linestyle=style["linestyle"], linewidth=1.4, label=series.label)
    top = int(np.argmax(shares))
    _draw_marks(axes, series, np.sqrt(edges[top : top + 1] * edges[top + 1 : top + 2]), shares[top : top + 1])


def _draw_marks(axes: Axes, series: Series, x: Floats, y: Floats) -> None:
    style = {**line_style(series.number), "linestyle": "none", "markersize": 5, "label": f"{series.label}: marks"}
    if series.cases[0].under_sent:
        style = {**hollow(series.number), "label": f"{series.label}: marks, under-sent"}
    axes.plot(x, y, **style)


def _scale_cdf(panels: Sequence[Axes], layout: Layout, _log: bool) -> None:
    _scale_latency(panels, layout)
    panels[0].set_ylim(-2, 102)


def _scale_histogram(panels: Sequence[Axes], layout: Layout, log: bool) -> None:
    _scale_latency(panels, layout)
    axes = panels[0]
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(PLAIN)
        axes.set_ylim(bottom=80 / max(case.samples for case in layout.cases))  # a single sample is above it
    else:
        axes.set_ylim(bottom=0)


def _scale_latency(panels: Sequence[Axes], layout: Layout) -> None:
    """The x axis: logarithmic, and a decade at least."""
    axes = panels[0]
    axes.set_xscale("log")
    low, high = min(panel.dataLim.minposx for panel in panels), max(panel.dataLim.x1 for panel in panels)
    middle = (low * high) ** 0.5
    low, high = min(low / 1.1, middle / 3), max(high * 1.1, middle * 3)
    axes.set_xlim(low, high)
    labels_per_decade = (1, 2, 5) if log10(high / low) * max(layout.columns, 1.5) < 4.5 else (1,)
    axes.xaxis.set_major_locator(LogLocator(subs=labels_per_decade))
    axes.xaxis.set_major_formatter(PLAIN)
    axes.xaxis.set_minor_formatter(NullFormatter())


def _cdf_key(layout: Layout, _log: bool) -> list[Artist]:
    marks = key("marks at 25, 50 and 75 %", linestyle="none", marker="o", markersize=5)
    return [marks, *hollow_key(layout, "less sent than offered")]


def _histogram_key(layout: Layout, _log: bool) -> list[Artist]:
    marks = key("mark at the highest bin", linestyle="none", marker="o", markersize=5)
    return [marks, *hollow_key(layout, "less sent than offered")]


CDF: Final = Chart(_draw_cdf, _scale_cdf, _cdf_key, lambda _: (_LATENCY, "share of samples at or below [%]"), axis="")
HISTOGRAM: Final = Chart(
    _draw_histogram,
    _scale_histogram,
    _histogram_key,
    lambda _: (_LATENCY, f"share of samples per bin, {BINS_PER_DECADE} bins per decade [%]"),
    axis="",
)
