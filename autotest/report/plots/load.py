"""Latency, loss and throughput over the offered rate. The figures are those of :meth:`Case.estimate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from autotest.report.cases import Case
from autotest.report.metrics import METRICS
from autotest.report.plots.layout import Layout, Series
from autotest.report.plots.style import (
    GREY,
    PALE,
    PLAIN,
    Chart,
    hollow,
    hollow_key,
    key,
    line_style,
)

Floats = NDArray[np.float64]

_LEAST_LOSS = 0.001
"""Per cent; on a logarithmic axis of the loss the scale is linear below."""
_MOST_TICKS = 12


@dataclass(frozen=True)
class _Points:
    """Figures of test cases over their rates in kpps; NaN where there is none."""

    rates: Floats
    cases: tuple[Case, ...]

    def of(self, metric: str) -> tuple[Floats, Floats, Floats]:
        """Mean over the repetitions, lower and upper end of its confidence interval."""
        found = [case.estimate(METRICS[metric]) for case in self.cases]
        rows = [(one.mean, one.low, one.high) if one else (None, None, None) for one in found]
        mean, low, high = np.array(rows, dtype=float).reshape(-1, 3).T
        return mean, low, high


def offered(case: Case) -> float:
    """The offered rate in kpps; for 0, which stands for as fast as possible, the achieved one."""
    return float(case.load) or achieved(case)


def achieved(case: Case) -> float:
    """The rate in kpps that was really sent, mean over the repetitions; the offered one where that is unknown."""
    found = case.estimate(METRICS["achieved"])
    return found.mean if found else float(case.load)


def _line(series: Series) -> _Points:
    """The points of the line, with a gap where one is missing or under-sent, so that no line leads past it."""
    cases = sorted(series.cases, key=offered)
    connected = tuple(Case(case.parameters, case.trials, ()) if case.under_sent else case for case in cases)
    return _Points(np.array([offered(case) for case in cases]), connected)


def _apart(series: Series, *, at_achieved: bool) -> _Points:
    """The under-sent points: latency and loss belong to the rate that was really sent."""
    cases = tuple(case for case in series.cases if case.under_sent)
    return _Points(np.array([achieved(case) if at_achieved else offered(case) for case in cases]), cases)


def _draw_latency(axes: Axes, series: Series) -> None:
    """Median with its confidence interval, band from 25 to 75 %, the 99th percentile as a thin line."""
    style, label = line_style(series.number), series.label
    colour = style["color"]
    line, apart = _line(series), _apart(series, at_achieved=True)
    p25, p50, p75, p99 = (line.of(name)[0] for name in ("p25", "p50", "p75", "p99"))
    axes.fill_between(line.rates, p25, p75, color=colour, alpha=0.18, linewidth=0, label=f"{label}: 25 to 75 %")
    axes.plot(line.rates, p99, color=colour, linestyle=style["linestyle"], linewidth=0.7, label=f"{label}: 99 %")
    _draw_means(axes, series, "p50", line, apart)
    for points, alone in ((line, _alone(p50)), (apart, np.ones(len(apart.cases), bool))):
        if alone.any():  # a band and a line have no width where there is no neighbour
            rates = points.rates[alone]
            low, high, highest = (points.of(name)[0][alone] for name in ("p25", "p75", "p99"))
            axes.vlines(rates, low, high, colors=colour, alpha=0.3, linewidth=6, label=f"{label}: 25 to 75 %")
            axes.plot(rates, highest, color=colour, marker="_", linestyle="none", markersize=7, label=f"{label}: 99 %")


def _draw_loss(axes: Axes, series: Series) -> None:
    _draw_means(axes, series, "loss", _line(series), _apart(series, at_achieved=True), highest=100)


def _draw_throughput(axes: Axes, series: Series) -> None:
    _draw_means(axes, series, "throughput", _line(series), _apart(series, at_achieved=False))


def _draw_means(axes: Axes, series: Series, metric: str, line: _Points, apart: _Points, highest: float = np.inf) -> None:
    """The line, the hollow points apart from it, and bars over their confidence intervals, within 0 and ``highest``."""
    label = f"{series.label}: {METRICS[metric].label}"
    style = line_style(series.number)
    axes.plot(line.rates, line.of(metric)[0], markersize=5, linewidth=1.6, label=label, **style)
    if apart.cases:
        axes.plot(apart.rates, apart.of(metric)[0], label=f"{label}, under-sent", **hollow(series.number))
    for points in (line, apart):
        mean, low, high = points.of(metric)
        known = np.isfinite(low)
        if known.any():
            reach = [(mean - np.maximum(low, 0))[known], (np.minimum(high, highest) - mean)[known]]
            bars = {"fmt": "none", "ecolor": style["color"], "elinewidth": 0.9, "capsize": 2.5}
            axes.errorbar(points.rates[known], mean[known], yerr=reach, label=f"{label}, interval", **bars)


def _alone(values: Floats) -> NDArray[np.bool_]:
    """Which points have no neighbour that a line could lead to."""
    known = np.concatenate(([False], np.isfinite(values), [False]))
    return known[1:-1] & ~known[:-2] & ~known[2:]


# -- axes --------------------------------------------------------------------------------------------------


def _of_all(layout: Layout, metric: str) -> Floats:
    """A figure of every test case that has it."""
    mean, _, _ = _Points(np.empty(0), tuple(layout.cases)).of(metric)
    return mean[np.isfinite(mean)]


def _scale_latency(panels: Sequence[Axes], layout: Layout, _log: bool) -> None:
    axes = panels[0]
    _scale_rates(axes, layout)
    axes.set_yscale("log")
    drawn = [value for name in ("p25", "p50", "p99") for value in _of_all(layout, name)]
    if not drawn:
        return
    low, high = min(drawn), max(drawn)
    # About a decade at least: no mountains out of a few per cent, and always two labelled ticks.
    middle = (low * high) ** 0.5
    axes.set_ylim(min(low / 1.4, middle / 3), max(high * 1.4, middle * 3))
    _label_decades(axes)


def _scale_loss(panels: Sequence[Axes], layout: Layout, log: bool) -> None:
    axes = panels[0]
    _scale_rates(axes, layout)
    highest = float(_of_all(layout, "loss").max(initial=0))
    top = min(100.0, max(1.0, 1.08 * highest))  # not less than 1 %: no mountains out of single frames
    if not log:
        axes.set_ylim(-0.02 * top, 1.02 * top)
        return
    axes.set_yscale("symlog", linthresh=_LEAST_LOSS, linscale=0.5)
    axes.set_ylim(-_LEAST_LOSS / 5, 1.3 * top)
    axes.yaxis.set_major_locator(FixedLocator([0, *(10.0**power for power in range(-3, 3))]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PLAIN)


def _scale_throughput(panels: Sequence[Axes], layout: Layout, _log: bool) -> None:
    """Both axes of one kind, so that the diagonal is straight."""
    axes = panels[0]
    _scale_rates(axes, layout)
    rates = [offered(case) for case in layout.cases]
    received = _of_all(layout, "throughput")
    diagonal = [(min(rates) or max(rates) / 1000) if axes.get_xscale() == "log" else 0, max(rates)]
    for panel in panels:
        panel.plot(diagonal, diagonal, color=PALE, linewidth=0.9, zorder=1, label="received = offered")
    if axes.get_xscale() == "log" and received.min(initial=np.inf) > 0:
        axes.set_yscale("log")
        axes.set_ylim(min([*received, *rates]) / 1.25, max([*received, *rates]) * 1.25)
        _label_decades(axes)
    else:
        axes.set_ylim(0, 1.05 * max([*received, *rates]))


def _label_decades(axes: Axes) -> None:
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(PLAIN)
    axes.yaxis.set_minor_formatter(NullFormatter())


def _scale_rates(axes: Axes, layout: Layout) -> None:
    """The x axis; logarithmic where the rates span more than a factor of ten."""
    rates = sorted({rate for case in layout.cases for rate in (offered(case), achieved(case)) if rate > 0})
    if not rates or rates[-1] <= 10 * rates[0]:
        axes.set_xlim(0, 1.05 * rates[-1] if rates else 1)
        return
    axes.set_xscale("log")
    margin = (rates[-1] / rates[0]) ** 0.04
    axes.set_xlim(rates[0] / margin, rates[-1] * margin)
    ticks = sorted({offered(case) for case in layout.cases})
    if len(ticks) <= _MOST_TICKS:
        axes.xaxis.set_major_locator(FixedLocator(_readable(ticks, layout.columns)))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(PLAIN)


def _readable(ticks: list[float], columns: int) -> list[float]:
    """Those that leave each other room on a logarithmic axis, the last one always."""
    apart = (ticks[-1] / ticks[0]) ** (0.05 if columns == 1 else 0.05 * columns)
    kept = ticks[-1:]
    for tick in reversed(ticks[:-1]):
        if kept[-1] >= tick * apart:
            kept.append(tick)
    return kept[::-1]


# -- legend ------------------------------------------------------------------------------------------------


def _interval_key(layout: Layout) -> list[Artist]:
    if all(len(case.used) < 2 for case in layout.cases):
        return []
    return [key("95 % confidence interval", marker="|", markersize=9, linestyle="none", markeredgewidth=0.9)]


def _latency_key(layout: Layout, _log: bool) -> list[Artist]:
    band = Patch(color=GREY, alpha=0.25, linewidth=0, label="25th to 75th percentile")
    under_sent = hollow_key(layout, "at the rate that was sent")
    lone = [key("99th percentile of a lone point", marker="_", markersize=7, linestyle="none")] if _has_lone(layout) else []
    return [key("median"), band, key("99th percentile", linewidth=0.7), *lone, *_interval_key(layout), *under_sent]


def _has_lone(layout: Layout) -> bool:
    """Whether any point stands where no line leads."""
    every = [series for panel in layout.panels for series in panel.series]
    return any(_apart(series, at_achieved=True).cases or _alone(_line(series).of("p50")[0]).any() for series in every)


def _loss_key(layout: Layout, log: bool) -> list[Artist]:
    linear = [key(f"scale: linear below {_LEAST_LOSS} %", linestyle="none")] if log else []
    return [*_interval_key(layout), *hollow_key(layout, "at the rate that was sent"), *linear]


def _throughput_key(layout: Layout, _log: bool) -> list[Artist]:
    diagonal = key("received = offered", color=PALE, linewidth=0.9)
    return [diagonal, *_interval_key(layout), *hollow_key(layout, "less sent than offered")]


def _rate_label(layout: Layout) -> str:
    if any(case.under_sent for case in layout.cases):
        return "offered rate (hollow points: achieved rate) [kpps]"
    return "offered rate [kpps]"


LATENCY: Final = Chart(
    _draw_latency,
    _scale_latency,
    _latency_key,
    lambda layout: (_rate_label(layout), f"round-trip latency [{METRICS['p50'].unit}]"),
    load_axis=True,
)
LOSS: Final = Chart(
    _draw_loss,
    _scale_loss,
    _loss_key,
    lambda layout: (_rate_label(layout), f"loss [{METRICS['loss'].unit} of the frames sent]"),
    load_axis=True,
)
THROUGHPUT: Final = Chart(
    _draw_throughput,
    _scale_throughput,
    _throughput_key,
    lambda _: ("offered rate [kpps]", f"throughput: received rate [{METRICS['throughput'].unit}]"),
    load_axis=True,
)
