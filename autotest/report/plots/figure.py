"""Figures: panels with shared axes above, legend and caption below."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from autotest.report.plots.distribution import CDF, HISTOGRAM
from autotest.report.plots.guests import GUESTS_LATENCY, GUESTS_LOSS
from autotest.report.plots.layout import Layout, Panel
from autotest.report.plots.load import LATENCY, LOSS, THROUGHPUT
from autotest.report.plots.style import GREY, RC, Chart, handle

CHARTS: Final[Mapping[str, Sequence[Chart]]] = {
    "latency": (LATENCY,),
    "loss": (LOSS,),
    "throughput": (THROUGHPUT,),
    "cdf": (CDF,),
    "histogram": (HISTOGRAM,),
    "guests": (GUESTS_LATENCY, GUESTS_LOSS),
}
"""The charts of a kind of plot, one above the other; they share the x axis."""
_WIDTH_IN, _PANEL_WIDTH_IN, _LONE_PANEL_IN, _PANEL_IN = 7.0, 2.9, 3.7, 2.3
_BESIDE_IN = 0.6  # of a panel: the space for the numbers of its axis, and between panels
_ROW_IN, _CAPTION_ROW_IN, _GAP_IN = 0.165, 0.125, 0.1
_LETTER_IN, _SMALL_LETTER_IN = 0.058, 0.0465
"""Width of an average letter in the legend, and in the caption."""
_HANDLE_IN, _MOST_COLUMNS = 0.68, 4


def draw(kind: str, layout: Layout, caption: str, *, log: bool) -> Figure:
    """One figure.

    Args:
        kind: one of :data:`CHARTS`.
        caption: what has to be known to cite the plot; is wrapped.

    Raises:
        ResultsError: the histogram of a trial cannot be read.
    """
    charts = CHARTS[kind]
    with matplotlib.rc_context(RC):
        series = [handle(number, label) for number, label in enumerate(layout.labels)]
        key = _distinct([entry for chart in charts for entry in chart.key(layout, log)])
        width = max(_WIDTH_IN, _PANEL_WIDTH_IN * layout.columns)
        legend = [(part, _legend_columns(part, width)) for part in (series, key) if part]
        lines = textwrap.wrap(caption, int((width - 0.3) / _SMALL_LETTER_IN))
        below = sum(-(-len(part) // columns) for part, columns in legend) * _ROW_IN + len(lines) * _CAPTION_ROW_IN + 3 * _GAP_IN
        rows = layout.rows * len(charts)
        above = _LONE_PANEL_IN if rows == 1 else _PANEL_IN * rows + 0.3
        figure = Figure(figsize=(width, above + below), layout="constrained")
        grid = figure.add_gridspec(2, 1, height_ratios=[above, below])
        upper, lower = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
        _draw_panels(upper, charts, layout, log)
        _draw_legend(lower, legend, below)
        lower.text(0.15 / width, _GAP_IN / 2 / below, "\n".join(lines), fontsize=6.5, color=GREY, va="bottom", linespacing=1.25)
    return figure


def _draw_panels(figure: SubFigure, charts: Sequence[Chart], layout: Layout, log: bool) -> None:
    """The panels of the first chart, below them those of the next: all with one x axis, those of a chart with one y axis."""
    grid = figure.add_gridspec(layout.rows * len(charts), layout.columns)
    every: list[Axes] = []
    for number, chart in enumerate(charts):
        drawn: list[Axes] = []
        for panel in layout.panels:
            place = grid[number * layout.rows + panel.row, panel.column]
            axes = figure.add_subplot(place, sharex=every[0] if every else None, sharey=drawn[0] if drawn else None)
            every.append(axes)
            drawn.append(axes)
            for series in panel.series:
                chart.draw(axes, series)
            _label_panel(axes, panel, layout, is_first=not number, is_last=number == len(charts) - 1)
        chart.scale(drawn, layout, log)
        for panel, axes in zip(layout.panels, drawn, strict=True):
            if len(charts) > 1 and not panel.column:
                axes.set_ylabel(chart.labels(layout)[1])
    figure.align_ylabels(every)
    x_label, y_label = charts[0].labels(layout)
    figure.supxlabel(x_label, fontsize="medium")
    if len(charts) == 1:
        figure.supylabel(y_label, fontsize="medium")


def _label_panel(axes: Axes, panel: Panel, layout: Layout, *, is_first: bool, is_last: bool) -> None:
    """The title, above the first chart only where there is one row of them, and numbers at the axes that have no neighbour."""
    places = {(panel.row, panel.column) for panel in layout.panels}
    below = not is_last or (panel.row + 1, panel.column) in places
    if is_first or layout.rows > 1:
        width = max(_PANEL_WIDTH_IN, _WIDTH_IN / layout.columns) - _BESIDE_IN
        axes.set_title(textwrap.fill(panel.title, int(width / _LETTER_IN)), fontsize="medium", loc="left")
    axes.tick_params(labelbottom=not below, labelleft=(panel.row, panel.column - 1) not in places)


def _distinct(entries: Sequence[Artist]) -> list[Artist]:
    """Each explanation once."""
    return list({str(entry.get_label()): entry for entry in entries}.values())


def _legend_columns(entries: Sequence[Artist], width: float) -> int:
    """As many as fit: a column is as wide as its longest label. The first ones are longer, where they are not all the same."""
    labels = [str(entry.get_label()) for entry in entries]
    for columns in range(min(len(labels), _MOST_COLUMNS), 1, -1):
        rows, longer = divmod(len(labels), columns)
        starts = [column * rows + min(column, longer) for column in range(columns + 1)]
        longest = [max(map(len, labels[start:end])) for start, end in pairwise(starts)]
        if sum(_HANDLE_IN + _LETTER_IN * letters for letters in longest) < width - 0.2:
            return columns
    return 1


def _draw_legend(figure: SubFigure, legend: Sequence[tuple[Sequence[Artist], int]], height: float) -> None:
    """The series, and under them what holds for all of them."""
    top = 1.0
    for entries, columns in legend:
        figure.legend(
            handles=list(entries),
            loc="upper center",
            bbox_to_anchor=(0.5, top),
            ncols=columns,
            frameon=False,
            handlelength=3.2,
            fontsize=8,
            borderpad=0.1,
            labelspacing=0.35,
        )
        top -= (-(-len(entries) // columns) * _ROW_IN + _GAP_IN / 2) / height
