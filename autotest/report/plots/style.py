"""How lines look, and what the legend says of them, in all plots.

Lines differ in colour, marker and line style at once: the colours are those of M. Okabe and K. Ito ("Color Universal
Design", 2008), told apart with any colour vision, and marker and line style carry it in black and white.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from autotest.report.plots.layout import Layout, Series

COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "X", "P", "*", "<")
_LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)))
DISTINCT: Final = len(COLOURS) * len(_MARKERS)
"""So many lines differ in something."""
GREY: Final = "#555555"
PALE: Final = "#999999"
RC: Final[Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
    "svg.hashsalt": "autotest",  # the same results give the same file
}


@dataclass(frozen=True)
class Chart:
    """One kind of plot.

    Attributes:
        draw: one series, with its label, into the axes of its panel.
        scale: scales, limits and ticks, which the axes of all panels share; the bool asks for a logarithmic y axis.
        key: what the legend explains besides the series.
        labels: of the x and the y axis, with units.
        axis: the parameter that goes along the x axis; empty where none does.
    """

    draw: Callable[[Axes, Series], None]
    scale: Callable[[Sequence[Axes], Layout, bool], None]
    key: Callable[[Layout, bool], list[Artist]]
    labels: Callable[[Layout], tuple[str, str]]
    axis: str


def line_style(number: int) -> dict[str, Any]:
    """Colour, marker and line style of a series."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "linestyle": _LINES[number % len(_LINES)],
    }


def hollow(number: int) -> dict[str, Any]:
    """The marker of what is under-sent: no line leads to it, and it lies above the lines of others."""
    edge = {"markerfacecolor": "white", "markeredgewidth": 1.2, "markersize": 5.5}
    return {**line_style(number), "linestyle": "none", "zorder": 3, **edge}


def handle(number: int, label: str) -> Line2D:
    """A series in the legend."""
    return Line2D([], [], label=label, markersize=5, linewidth=1.6, **line_style(number))


def key(label: str, **line: Any) -> Line2D:
    """Something that holds for every series, in the legend."""
    return Line2D([], [], **{"color": GREY, "label": label, "linewidth": 1.6, **line})


def hollow_key(layout: Layout, text: str) -> list[Artist]:
    """What hollow markers mean, where there are any."""
    if not any(case.under_sent for case in layout.cases):
        return []
    return [key(f"hollow: under-sent, {text}", marker="o", markerfacecolor="white", linestyle="none", markersize=5)]


def _plain(value: float, _position: int | None = None) -> str:
    return f"{value:g}" if value < 1e6 else f"{value:.0f}"


PLAIN: Final = FuncFormatter(_plain)
"""Numbers on an axis without powers of ten."""
